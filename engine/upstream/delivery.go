package upstream

import "fmt"

// Delivery is how new weights reach a server.
type Delivery string

// Deliveries. DeliveryDisk: it reads a directory that it shares with the control plane. DeliveryLora: the same,
// as an adapter. DeliveryDistributed: it receives the tensors in a collective with who has them (Sender,
// Joiner). DeliveryRestart: it is started again with the directory (Restarter). DeliveryNone: it goes on
// serving version 0.
const (
	DeliveryDisk        Delivery = "disk"
	DeliveryLora        Delivery = "lora"
	DeliveryDistributed Delivery = "distributed"
	DeliveryRestart     Delivery = "restart"
	DeliveryNone        Delivery = "none"
)

// given reports whether weights are put into a server that runs, so that another process in its place has others.
func (r Delivery) given() bool { return r != DeliveryNone && r != DeliveryRestart }

// Takes reports whether a server takes new weights by a delivery while it runs. One that is started for
// them, or takes none, needs no capability.
func (c Capabilities) Takes(delivery Delivery) bool {
	switch delivery {
	case DeliveryDisk:
		return c.UpdateDisk
	case DeliveryLora:
		return c.UpdateLora
	case DeliveryDistributed:
		return c.UpdateDistributed
	}
	return true
}

// Lacks is the list of missing features where weights go by a delivery. Those for other deliveries are left
// out, and one for this delivery is fatal.
func (c Capabilities) Lacks(delivery Delivery) []Missing {
	var out []Missing
	said := c.Takes(delivery)
	for _, m := range c.Missing {
		switch m.Delivery {
		case "":
		case delivery:
			m.Fatal, said = true, true
		default:
			continue
		}
		out = append(out, m)
	}
	if !said {
		out = append(out, Missing{What: fmt.Sprintf("it takes no new weights by %s while it runs", delivery), Delivery: delivery, Fatal: true})
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
