package upstream

import "fmt"

// Road is how new weights reach a server.
type Road string

// Roads. RoadDisk: it reads a directory that it shares with the control plane. RoadLora: the same,
// as an adapter. RoadDistributed: it receives the tensors in a collective with who has them (Sender,
// Joiner). RoadRestart: it is started again with the directory (Restarter). RoadNone: it goes on
// serving version 0.
const (
	RoadDisk        Road = "disk"
	RoadLora        Road = "lora"
	RoadDistributed Road = "distributed"
	RoadRestart     Road = "restart"
	RoadNone        Road = "none"
)

// given reports whether weights are put into a server that runs, so that another process in its place has others.
func (r Road) given() bool { return r != RoadNone && r != RoadRestart }

// Takes reports whether a server takes new weights by a road while it runs. One that is started for
// them, or takes none, needs no capability.
func (c Capabilities) Takes(road Road) bool {
	switch road {
	case RoadDisk:
		return c.UpdateDisk
	case RoadLora:
		return c.UpdateLora
	case RoadDistributed:
		return c.UpdateDistributed
	}
	return true
}

// Lacks is the list of missing features where weights go by a road. Those for other roads are left
// out, and one for this road is fatal.
func (c Capabilities) Lacks(road Road) []Missing {
	var out []Missing
	said := c.Takes(road)
	for _, m := range c.Missing {
		switch m.Road {
		case "":
		case road:
			m.Fatal, said = true, true
		default:
			continue
		}
		out = append(out, m)
	}
	if !said {
		out = append(out, Missing{What: fmt.Sprintf("it takes no new weights by %s while it runs", road), Road: road, Fatal: true})
	}
	return out
}

// String is the missing feature and the remedy, a clause.
func (m Missing) String() string {
	if m.Flag == "" {
		return m.What
	}
	return fmt.Sprintf("%s (start it with %s)", m.What, m.Flag)
}
