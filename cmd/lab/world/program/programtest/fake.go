// Package programtest is a fake of the world's program, for the tests of what runs it: a test's own program, under
// another name.
package programtest

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strconv"
	"strings"

	"github.com/headway-rl/headway/cmd/lab/world/outcome"
	"github.com/headway-rl/headway/cmd/lab/world/plan"
	"github.com/headway-rl/headway/cmd/lab/world/program"
)

// Seeds whose worlds go wrong. A seed that is a multiple of ShortEvery does not count, and the worlds of all others are
// clean.
const (
	Violated      = 1001 // breaks two rules: "once", then "twice"
	Stuck         = 1002
	Panicked      = 1003
	Hanging       = 1004
	Killed        = 1005
	Rubbish       = 1006 // prints a line that is no JSON
	Talkative     = 1007 // prints a line before the answer
	Silent        = 1008
	Broken        = 1009 // says by its exit code that it failed, and names no rule
	Contradictory = 1010 // names a rule, and says by its exit code that all is well
	Odd           = 1011 // ends with exit code 3
	Harness       = 1012
	Raced         = 1013
	Unsteady      = 1014 // has another mix in every run
	Wavering      = 1015 // has another third line of its history in every run
	ShortEvery    = 10
)

// Main acts as the world's program and ends the process, if the process is a copy that program.Open made of the test's
// program. Call it first in TestMain.
func Main() {
	if filepath.Base(os.Args[0]) == "world" {
		os.Exit(world(os.Args[1:]))
	}
}

// Open makes the test's program the world's program.
func Open() (*program.Program, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return program.Open(path, false)
}

// Plan is the plan of a seed.
func Plan(seed uint64) plan.Plan {
	return plan.Plan{
		Seed: seed, Steps: 24, Planes: 2, Workers: 3, Engines: []plan.Engine{{Slots: 2, TokenUS: 500}, {Slots: 4, TokenUS: 2000}}, Receivers: 1,
		Rules: plan.Rules{GroupSize: 2, Batch: 4, Queue: "policy: bounded, eta: 1", Attempts: 40, LeaseMS: 2000, ClaimMS: 2000, WriterMS: 1000},
		Faults: []plan.Fault{
			{AtMS: 1500, Kind: plan.Kill, Host: "plane1", ForMS: 300, N: 10}, {AtMS: 2000, Kind: plan.Kill, Host: "worker2", ForMS: 1000, N: 1},
			{AtMS: 2500, Kind: plan.Freeze, Host: "engine1", ForMS: 6000}, {AtMS: 3000, Kind: plan.Cut, Host: "plane0", Other: "broker", ForMS: 3000, Both: true},
			{AtMS: 3500, Kind: plan.Double, Host: "trainer", ForMS: 3000}, {AtMS: 4000, Kind: plan.Kill, Host: "worker0", ForMS: 50, N: 100},
		},
	}
}

// Fails reports whether a run of a plan breaks the rule "shrinks". That takes a kill of a worker, requests of the trainer
// that are doubled for at least 100 ms, and 3 steps.
func Fails(p plan.Plan) bool {
	killed, doubled := false, false
	for _, f := range p.Faults {
		killed = killed || f.Kind == plan.Kill && strings.HasPrefix(f.Host, "worker")
		doubled = doubled || f.Kind == plan.Double && f.Host == "trainer" && f.ForMS >= 100
	}
	return killed && doubled && p.Steps >= 3 && p.Workers >= 1
}

func world(arguments []string) int {
	if len(arguments) != 1 || !strings.HasPrefix(arguments[0], "-history=") {
		return harness("want whether the history is written, have %q", arguments)
	}
	var p plan.Plan
	text, err := io.ReadAll(os.Stdin)
	if err == nil {
		err = json.Unmarshal(text, &p)
	}
	if err != nil {
		return harness("%v", err)
	}
	drawn := reflect.DeepEqual(p, plan.Draw(p.Seed))
	if drawn {
		p = Plan(p.Seed)
	}
	if arguments[0] == "-history=1" {
		history := "one\ntwo\n"
		if p.Seed == Wavering {
			history += fmt.Sprintln(os.Getpid())
		}
		if p.Seed == Panicked {
			return act(p, false) // before it has written any
		}
		if _, err := os.NewFile(3, "history").WriteString(history); err != nil {
			return harness("%v", err)
		}
	}
	if entries, err := os.ReadDir("."); err != nil || len(entries) > 0 {
		return harness("the folder is not empty")
	}
	if os.Getenv("GOMAXPROCS") != "1" || os.Getenv("PATH") != "" {
		return harness("the environment is %q", os.Environ())
	}
	if dir, err := os.Getwd(); err != nil || dir != "/proc/self/cwd" && runtime.GOOS == "linux" {
		return harness("the working directory is %s, %v", dir, err)
	}
	if err := os.WriteFile("left", []byte("behind"), 0o644); err != nil {
		return harness("%v", err)
	}
	return act(p, !drawn && Fails(p))
}

func harness(format string, values ...any) int {
	fmt.Fprintf(os.Stderr, "world: "+format+"\n", values...)
	return outcome.Harness
}

// act does what the seed says.
func act(p plan.Plan, broken bool) int {
	o := outcome.Outcome{
		Seed: p.Seed, Plan: p, Steps: p.Steps, Events: 100, Faults: map[string]int64{}, Mix: strconv.FormatUint(p.Seed*0x9e3779b97f4a7c15, 16),
		Pairs: map[string]int64{"publish/kill": 1, "claim/cut": 0}, Marks: map[string]int64{"takeover": 1}, WorldS: 10, AllocMB: float64(p.Seed % 100),
	}
	for _, f := range p.Faults {
		o.Faults[f.Kind]++
	}
	if p.Seed%ShortEvery == 0 {
		o.Steps = 3
	}
	code := outcome.Clean
	if broken {
		o.Violations, code = []outcome.Violation{{Rule: "shrinks", Text: "a worker dies while requests are doubled"}}, outcome.Broken
	}
	switch p.Seed {
	case Violated:
		o.Violations, code = []outcome.Violation{{Rule: "once", Text: "rollout 7 ended twice"}, {Rule: "twice", Text: "group 2 was trained twice"}}, outcome.Broken
	case Stuck:
		o.Stuck, code = "no step for 10 minutes", outcome.Broken
	case Broken:
		code = outcome.Broken
	case Contradictory:
		o.Violations = []outcome.Violation{{Rule: "once", Text: "rollout 7 ended twice"}}
	case Talkative:
		fmt.Println("hello")
	case Unsteady:
		o.Mix = strconv.Itoa(os.Getpid())
	default:
		if code, end := abrupt(p.Seed); end {
			return code
		}
	}
	text, err := json.Marshal(o)
	if err != nil {
		return harness("%v", err)
	}
	fmt.Println(string(text))
	return code
}

// abrupt ends without an answer.
func abrupt(seed uint64) (code int, end bool) {
	switch seed {
	case Panicked:
		panic("index out of range")
	case Hanging:
		for i := 0; ; i++ {
			_ = i
		}
	case Killed:
		self, _ := os.FindProcess(os.Getpid())
		_ = self.Kill()
		select {}
	case Rubbish:
		fmt.Println("{nonsense")
	case Silent:
	case Odd:
		return 3, true
	case Harness:
		return harness("no room"), true
	case Raced:
		fmt.Fprintln(os.Stderr, "WARNING: DATA RACE")
		return 66, true
	default:
		return 0, false
	}
	return outcome.Clean, true
}
