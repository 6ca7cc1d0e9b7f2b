package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/headway-rl/headway/loop"
)

// Fleet says how engines are started and stopped while a run goes on. Those of the document are there at its start; up to most, there may be others like the last of them.
type Fleet struct {
	// Driver starts and stops engines: embedded, in this process; process, as programs on this machine; kubernetes, as the pods of a workload. Default embedded for embedded engines.
	Driver string `json:"driver,omitempty" allowed:"embedded process kubernetes"`
	// Least is the number of engines that are always there. Default 1.
	Least int `json:"least,omitempty" min:"1" max:"4096"`
	// Most is the number of engines that there may be; all their slots add up to rollout.concurrency. Default those of the document.
	Most int `json:"most,omitempty" min:"1" max:"4096"`
	// Start is the number of engines at the start of the run. Default those of the document.
	Start int `json:"start,omitempty" min:"1" max:"4096"`
	// StartTimeoutS is how long an engine may take to be there, in seconds, before it is given up for now. Default 600.
	StartTimeoutS float64 `json:"start_timeout_s,omitempty" above:"0" max:"86400"`
	// StopTimeoutS is how long an engine may take to go, in seconds. Default 120.
	StopTimeoutS float64 `json:"stop_timeout_s,omitempty" above:"0" max:"86400"`
	// Command starts an engine with driver process: program and arguments, in which {port}, {index}, {name} and {cell} stand for the engine's own.
	Command []string `json:"command,omitempty"`
	// CellCommand starts a cell with driver process, before the first of its engines. It is program and arguments, in which {cell} stands for the cell's name, and {index} for its number from 0. Default none: cells are started otherwise.
	CellCommand []string `json:"cell_command,omitempty"`
	// Port is that of engine 0 with driver process; engine i has the i-th after it. Default free ones, which engines of cells cannot have.
	Port int `json:"port,omitempty" min:"1024" max:"65535"`
	// GraceS is how long a program may take to end when it is asked to, in seconds, before it is killed. Default 10.
	GraceS float64 `json:"grace_s,omitempty" above:"0" max:"3600"`
	// Workload is what is scaled with driver kubernetes: statefulset/NAME, leaderworkerset/NAME, or GROUP/VERSION/PLURAL/NAME of another whose pods are NAME-0, NAME-1 and so on.
	Workload string `json:"workload,omitempty"`
	// Namespace of the workload. Default that of the context, or of this process's pod.
	Namespace string `json:"namespace,omitempty"`
	// Config is a kubeconfig file. Default KUBECONFIG, this pod's account, ~/.kube/config.
	Config string `json:"config,omitempty"`
	// Context is the kubeconfig's context. Default its current one.
	Context string `json:"context,omitempty"`
}

// Defaults of a fleet.
const (
	fleetStartTimeoutDefault = 600
	fleetStopTimeoutDefault  = 120
	fleetGraceDefault        = 10
)

// Elastic reports whether engines of a resolved document are started and stopped by the run.
func (c Config) Elastic() bool { return c.Fleet.Driver != "" }

// fleetDefaults fills in a fleet, and the engines that there may be beside those of the document.
func (c *Config) fleetDefaults() {
	f := &c.Fleet
	if _, said := c.givenUnder("fleet"); !said && !f.said() {
		return
	}
	if f.Driver == "" && !c.External() {
		f.Driver = "embedded"
	}
	listed := max(len(c.Engines), 1)
	orCount(&f.Start, listed, c.given("fleet.start"))
	orCount(&f.Most, max(listed, f.Start), c.given("fleet.most"))
	orCount(&f.Least, 1, c.given("fleet.least"))
	orNumber(&f.StartTimeoutS, fleetStartTimeoutDefault, c.given("fleet.start_timeout_s"))
	orNumber(&f.StopTimeoutS, fleetStopTimeoutDefault, c.given("fleet.stop_timeout_s"))
	if f.Driver == "process" {
		orNumber(&f.GraceS, fleetGraceDefault, c.given("fleet.grace_s"))
	}
	if len(c.Engines) == 0 {
		c.Engines = []Engine{{}}
	}
	if f.Driver == "process" {
		for i := range c.Engines {
			if c.Engines[i].External() {
				orWord(&c.Engines[i].URL, "http://127.0.0.1:{port}")
			}
		}
	}
	for last := c.Engines[len(c.Engines)-1]; len(c.Engines) < min(f.Most, fleetMost); {
		one := last
		if one.Name != "" {
			one.Name = fmt.Sprintf("%s-%d", strings.TrimSuffix(last.Name, fmt.Sprintf("-%d", f.Start-1)), len(c.Engines))
		}
		c.Engines = append(c.Engines, one)
	}
	for i := range c.Engines {
		c.Engines[i].Cell = strings.ReplaceAll(c.Engines[i].Cell, "{index}", strconv.Itoa(i))
	}
}

// fleetMost is the largest fleet.most, behind a value that Validate will refuse.
const fleetMost = 4096

// said reports whether a fleet says anything.
func (f Fleet) said() bool {
	return f.Driver != "" || f.Least != 0 || f.Most != 0 || f.Start != 0 || f.Workload != "" || len(f.Command) > 0 || len(f.CellCommand) > 0
}

// EngineURL is the address of an engine's server, with the words of a fleet filled in. Argument ports holds the ports
// of the engines, by their index. Without any, fleet.port counts, and 1 where that is not set.
func (c Config) EngineURL(i int, ports []int) string {
	port := 1 + i
	if c.Fleet.Port > 0 {
		port = c.Fleet.Port + i
	}
	if i < len(ports) {
		port = ports[i]
	}
	return strings.NewReplacer("{index}", strconv.Itoa(i), "{cell}", c.Engines[i].Cell, "{name}", c.Engines[i].Name, "{port}", strconv.Itoa(port)).Replace(c.Engines[i].URL)
}

// engineRange is what the number of engines may be moved within, before a controller's own limits.
func (c Config) engineRange() (least, most, start int) {
	if !c.Elastic() || c.Schedule == synchronousSchedule {
		return len(c.Engines), len(c.Engines), len(c.Engines)
	}
	return c.Fleet.Least, c.Fleet.Most, c.Fleet.Start
}

// fleetControl is what the loop needs to have engines come and go as it is asked to, where it has no
// goal of its own; nil where their number is fixed.
func (c Config) fleetControl() *loop.Control {
	least, most, _ := c.engineRange()
	if least == most {
		return nil
	}
	goal := &loop.Control{}
	goal.Ranges[loop.SettingEngines] = loop.Range{Least: float64(least), Most: float64(most)}
	return goal
}

// fleet checks what is said of a fleet.
func (v *validator) fleet() {
	c := v.config
	f := c.Fleet
	if _, said := c.givenUnder("fleet"); !said && !f.said() {
		for i, e := range c.Engines {
			if placeholder(e.URL) {
				v.fail(fmt.Sprintf("engines.%d.url", i), e.URL, "has words of a fleet, and there is none", "fleet.driver process or kubernetes, or the address itself: a range such as {1..40} where it has a number")
			}
		}
		return
	}
	if c.Tinker() {
		return // which is refused with the service's other mistakes
	}
	switch {
	case f.Driver == "":
		v.fail("fleet.driver", nil, "is missing: engines that are servers are started by somebody", "process, as programs on this machine, or kubernetes, as pods of a workload")
		return
	case f.Driver == "embedded" && c.External():
		v.fail("fleet.driver", f.Driver, "starts engines inside this process, and those of the document are servers", "process or kubernetes")
	case f.Driver != "embedded" && !c.External():
		v.fail("fleet.driver", f.Driver, "starts servers, and the engines of the document are embedded", "embedded, or engines of kind vllm, sglang, llamacpp or openai")
	}
	v.fleetCounts()
	v.fleetKeys()
	v.fleetCells()
	for i, e := range c.Engines {
		key := fmt.Sprintf("engines.%d.", i)
		if e.Weights == "restart" {
			v.fail(key+"weights", e.Weights, "starts its server by itself, and the fleet would start it too", "disk or none, or no fleet")
		}
	}
}

// fleetCounts checks the numbers of engines.
func (v *validator) fleetCounts() {
	f := v.config.Fleet
	switch {
	case f.Most != len(v.config.Engines):
		v.fail("fleet.most", f.Most, fmt.Sprintf("is not the %d engines of the document", len(v.config.Engines)), "at least as many as engines has")
	case f.Start > f.Most:
		v.fail("fleet.start", f.Start, fmt.Sprintf("is above fleet.most (%d)", f.Most), fmt.Sprintf("at most %d", f.Most))
	case f.Least > f.Start:
		v.fail("fleet.least", f.Least, fmt.Sprintf("is above the %d engines at the start", f.Start), fmt.Sprintf("at most %d, or more engines", f.Start))
	case v.config.Schedule == synchronousSchedule && f.Start < f.Most:
		v.fail("fleet.most", f.Most, "has no effect with schedule synchronous: nothing would ask for the others", fmt.Sprint(f.Start))
	}
}

// fleetKeys checks that what is said is of the driver.
func (v *validator) fleetKeys() {
	f := v.config.Fleet
	for _, of := range []struct {
		key, driver string
		given       bool
	}{
		{"command", "process", len(f.Command) > 0}, {"cell_command", "process", len(f.CellCommand) > 0}, {"port", "process", f.Port != 0}, {"grace_s", "process", f.GraceS != 0},
		{"workload", "kubernetes", f.Workload != ""}, {"namespace", "kubernetes", f.Namespace != ""},
		{"config", "kubernetes", f.Config != ""}, {"context", "kubernetes", f.Context != ""},
	} {
		if of.given && f.Driver != of.driver {
			v.fail("fleet."+of.key, nil, "is of driver "+of.driver+", and this is "+f.Driver, "driver "+of.driver+", or leave it out")
		}
	}
	switch {
	case f.Driver == "process" && (len(f.Command) == 0 || f.Command[0] == ""):
		v.fail("fleet.command", nil, "names no program", "program and arguments, such as [vllm, serve, /models/qwen, --port, \"{port}\"]")
	case f.Driver == "process" && f.Most > 1 && !slices.ContainsFunc(f.Command, placeholder):
		v.fail("fleet.command", nil, "starts every engine alike: they would all listen at the same port", "{port} where the engine's port goes")
	case f.Driver == "process" && f.Port+f.Most-1 > 65535:
		v.fail("fleet.port", f.Port, fmt.Sprintf("leaves no room for %d ports", f.Most), fmt.Sprintf("at most %d", 65536-f.Most))
	case f.Driver == "kubernetes" && f.Workload == "":
		v.fail("fleet.workload", nil, "is missing: nothing is named that could be scaled", "statefulset/NAME, or leaderworkerset/NAME")
	}
}

// fleetCells checks what is said of a fleet whose engines are of cells.
func (v *validator) fleetCells() {
	f, cells := v.config.Fleet, v.config.Cells()
	if f.Driver != "process" {
		return
	}
	names := func(word string) bool { return strings.Contains(word, "{cell}") }
	switch command := f.CellCommand; {
	case len(command) > 0 && len(cells) == 0:
		v.fail("fleet.cell_command", nil, "starts cells, and no engine is of one", "leave it out, or say engines.*.cell")
	case len(command) > 0 && command[0] == "":
		v.fail("fleet.cell_command", nil, "names no program", "program and arguments, such as [headway, cell, \"{cell}\", run.yaml, --name, first]")
	case len(command) > 0 && len(cells) > 1 && !slices.ContainsFunc(command, names):
		v.fail("fleet.cell_command", nil, "starts every cell alike: each process is one of "+strings.Join(cells, ", "), "{cell} where the cell's name goes")
	}
	if len(cells) > 0 && f.Port == 0 {
		v.fail("fleet.port", nil, "is missing: cells find the fleet's engines by the document, and free ports are in none", fmt.Sprintf("a port of this machine that %d are free from, such as 18000", f.Most))
	}
}

// placeholder reports whether a text has a word that a fleet fills in.
func placeholder(text string) bool {
	return strings.Contains(text, "{index}") || strings.Contains(text, "{port}") || strings.Contains(text, "{name}")
}
