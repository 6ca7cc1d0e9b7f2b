package lint

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// rule says what one room may import of the repository and of other modules,
// and why no more. Rooms are looked up from the most specific; a room without
// a rule fails, so that a new one states its reason.
type rule struct {
	room     string
	may      []string // rooms of this repository
	modules  []string // other modules, by prefix
	standard []string // the standard library: nil for all of it
	what     string   // what the room is
	why      string   // why it may import no more
}

// rules is the architecture. docs/ARCHITECTURE.md prints it, generated from here.
var rules = []rule{
	{"cmd/headway", []string{"*"}, []string{"github.com/alecthomas/kong", "charm.land/", "golang.org/x/term", "golang.org/x/sys", "github.com/goccy/go-yaml", "github.com/parquet-go/"}, nil,
		"the binary: one file per subcommand", "the only place that wires; nothing imports it"},
	{"loop/looptest", []string{"loop"}, []string{"github.com/cockroachdb/datadriven"}, nil,
		"script runner and independent checkers for the loop", "a checker that shared code with what it checks would share its mistakes"},
	{"loop", nil, nil, []string{"cmp", "encoding/json", "errors", "fmt", "math", "math/bits", "slices", "sort", "strconv", "strings"},
		"the deterministic state machine that decides", "the same code is live, simulated and replayed, so it can reach no clock, no I/O, no randomness and no concurrency"},
	{"loop/workload", nil, []string{"gonum.org/v1/gonum"}, nil,
		"length, service-time and acceptance models", "draws are a function of (seed, group, sample, attempt), whoever asks"},
	{"predict/theory", []string{"loop/workload"}, []string{"gonum.org/v1/gonum"}, nil,
		"closed forms: staleness, period, levers", "a prediction that could call the simulator would not be one"},
	{"predict/hardware", []string{"internal/spelling"}, nil, nil,
		"models and GPUs as speeds, memory limits and sync times", "facts and rooflines: it knows neither rules nor documents"},
	{"observe/estimate", nil, []string{"gonum.org/v1/gonum"}, nil,
		"warm-up, intervals and settling of a series", "statistics of numbers: it knows nothing of where they come from"},
	{"observe/timeline", []string{"loop"}, nil, nil,
		"a run's events as a trace viewer's spans", "it draws what any driver observed, and knows none"},
	{"predict/schedule", []string{"loop", "loop/workload", "predict/theory", "drive/sim", "observe/metrics", "predict/hardware", "observe/report"}, []string{"gonum.org/v1/"}, nil,
		"the schedules of reinforcement learning side by side", "it predicts and simulates: it starts nothing and reads no run"},
	{"predict/plan", []string{"config", "loop", "loop/workload", "predict/theory", "drive/sim", "observe/metrics", "predict/hardware", "predict/schedule", "observe/estimate", "predict/doctor", "observe/report"}, []string{"gonum.org/v1/"}, nil,
		"the search over settings under a budget", "it predicts and simulates: it starts nothing and reads no run"},
	{"predict/reproduce", []string{"internal/parallel", "config", "loop", "loop/workload", "predict/theory", "drive/sim", "observe/metrics", "observe/bias", "predict/hardware", "predict/schedule", "observe/estimate", "observe/report"}, []string{"gonum.org/v1/"}, nil,
		"published measurements beside ours", "it predicts and simulates from the published inputs alone"},
	{"observe/metrics", []string{"loop"}, []string{"gonum.org/v1/gonum"}, nil,
		"events and actions folded into series", "one implementation for simulator, live run and replay, so it knows none of them"},
	{"observe/bias", []string{"loop", "observe/metrics"}, []string{"gonum.org/v1/gonum"}, nil,
		"trained against started distributions", "statistics of a run's stream: it knows no driver"},
	{"predict/doctor", []string{"config", "loop", "loop/workload", "predict/theory", "drive/sim", "observe/metrics"}, []string{"gonum.org/v1/gonum"}, nil,
		"what is wrong with a document before it costs anything", "it judges settings: it starts nothing and reads no run"},
	{"cmd/lab/study", []string{"observe/attribution", "internal/parallel", "config", "loop", "loop/workload", "predict/theory", "drive/sim", "observe/metrics", "observe/bias", "observe/report"}, []string{"gonum.org/v1/gonum"}, nil,
		"scripted experiments, in simulation or over runs it is handed", "what it runs is handed to it, so that an experiment wires nothing of its own"},
	{"loop/trace", []string{"loop"}, nil, nil,
		"the event log: schema, writer, reader", "every driver writes the same log, so it knows none of them"},
	{"drive/sim", []string{"loop", "loop/workload", "loop/trace", "observe/metrics"}, []string{"gonum.org/v1/gonum"}, nil,
		"the virtual-time driver", "it drives the production loop with modelled devices, never real ones"},
	{"drive/replay", []string{"loop", "loop/workload", "drive/sim", "loop/trace", "observe/metrics", "observe/estimate"}, []string{"gonum.org/v1/gonum"}, nil,
		"a trace through the loop again; resimulation", "it has the trace and nothing else of the run"},
	{"drive/live", []string{"loop", "loop/trace", "observe/metrics", "observe/attribution"}, nil, nil,
		"the wall-clock driver; declares the ports", "adapters depend on the ports, never the ports on an adapter"},
	{"internal/transformer", nil, []string{"gonum.org/v1/gonum", "golang.org/x/sys"}, nil,
		"the float32 policy network", "a model knows nothing of how it is sampled or trained"},
	{"train/microbatch", nil, []string{"gonum.org/v1/gonum"}, nil,
		"packing and balancing of token counts over micro-batches and ranks", "plain numbers in, an assignment out: any trainer can call it"},
	{"train/grpo", nil, []string{"gonum.org/v1/gonum"}, nil,
		"advantages, losses, off-policy statistics", "servers and trainers use it on plain numbers"},
	{"engine/fleet", []string{"drive/live", "loop"}, nil, nil,
		"engines started and stopped for a live run", "it knows the port alone, and asks drivers whose words it does not know"},
	{"engine/fleet/kubernetes", []string{"engine/fleet", "internal/kubernetes"}, nil, nil,
		"engines as pods of a workload that is scaled", "a driver knows the port and never another driver"},
	{"engine/fleet/process", []string{"engine/fleet"}, []string{"golang.org/x/sys"}, nil,
		"engines as programs on this machine", "a driver knows the port and never another driver"},
	{"engine", []string{"drive/live", "loop", "loop/trace", "internal/transformer", "store/weights"}, nil, nil,
		"rollout engines, one folder per technology", "adapters know the ports and never each other"},
	{"engine/upstream", []string{"drive/live", "loop", "internal/socket"}, nil, nil,
		"what engines share that are servers of their own", "it knows the port towards the loop and what a dialect is, and no server"},
	{"engine/enginetest", []string{"drive/live", "loop", "engine/upstream"}, nil, nil,
		"what every engine that is a server must pass, recorded conversations and a proxy that fails on purpose", "it knows the port and the dialects' form, so that every engine is held to the same"},
	{"engine/vllm", []string{"drive/live", "loop", "engine/upstream"}, nil, nil, "vLLM's words", "a dialect knows its server and nothing of the others"},
	{"engine/sglang", []string{"drive/live", "loop", "engine/upstream"}, nil, nil, "SGLang's words", "a dialect knows its server and nothing of the others"},
	{"engine/llamacpp", []string{"drive/live", "loop", "engine/upstream"}, nil, nil, "llama-server's words", "a dialect knows its server and nothing of the others"},
	{"engine/openai", []string{"drive/live", "loop", "engine/upstream"}, nil, nil, "the least that any server that answers completions has", "a dialect knows its server and nothing of the others"},
	{"internal/tinker", nil, []string{"google.golang.org/protobuf"}, nil,
		"Tinker's API from the client's side: sessions, futures, the order of operations", "it speaks to a service and knows neither loop nor port, so that engine and trainer can share a session"},
	{"internal/tinker/tinkertest", []string{"internal/tinker"}, []string{"google.golang.org/protobuf"}, nil,
		"a service of that API in memory, which orders requests as each of the real ones does and fails on purpose", "it knows the words alone, so that engine and trainer are tested against the same"},
	{"engine/tinker", []string{"drive/live", "loop", "internal/tinker"}, nil, nil, "sampling by a service of Tinker's API", "an adapter knows its service and nothing of the others"},
	{"api/gateway", []string{"api/protocol", "loop"}, []string{"github.com/prometheus/client_golang"}, nil,
		"OpenAI's API in front of the engines: agents as rollouts", "it knows words and tokens; engines, slots and the record are behind its ports"},
	{"predict/calibrate", []string{"drive/live", "loop", "loop/workload", "observe/estimate", "observe/report"}, []string{"gonum.org/v1/gonum", "github.com/goccy/go-yaml"}, nil,
		"an engine's speed by its load, as a workload", "it measures an engine behind the port, whatever it is"},
	{"internal/parallel", nil, nil, nil,
		"many results on all cores, in order", "it knows nothing of what it makes"},
	{"internal/spelling", nil, nil, nil,
		"what somebody who mistyped a name probably meant", "words in, a word out: every room that reads names can ask"},
	{"internal/socket", nil, []string{"golang.org/x/sys"}, nil,
		"connections for streams of small events", "it moves bytes and knows nothing of what is in them"},
	{"api/protocol", []string{"loop", "observe/attribution"}, nil, nil,
		"the words of the HTTP API", "server, adapters and commands share them, and the words know none"},
	{"api", []string{"api/protocol", "loop", "observe/attribution", "internal/spelling", "internal/socket"}, []string{"github.com/prometheus/client_golang"}, nil,
		"the HTTP side of a control plane: authentication, limits, a handler per path", "what a request means is decided behind its ports"},
	{"train/batch", []string{"drive/live", "loop", "api/protocol", "train/grpo", "train/microbatch", "store/weights"}, nil, nil,
		"a leased batch as packed tensors, whole or in shares", "bytes in the one documented form: it knows neither queue nor connection"},
	{"store/transfer", []string{"store/weights", "loop", "api/protocol"}, nil, nil,
		"versions to every engine and stage: fan-out, two-phase switch, quarantine", "it moves files and knows nothing of what is in them"},
	{"engine/rendezvous", []string{"api/protocol"}, nil, nil,
		"the members of a collective, told where to meet", "it moves no tensor"},
	{"engine/broadcast", []string{"engine/upstream", "loop", "api/protocol"}, nil, nil,
		"the process with the trainer's weights and the engines that take them by a collective", "it moves no tensor, and knows neither servers nor how they are spoken to"},
	{"api/watchdog", []string{"api/protocol", "loop"}, nil, nil,
		"what a run that makes no progress waits for", "it judges a view of the run, and has no clock of its own"},
	{"store/payload", []string{"drive/live", "loop"}, nil, nil,
		"a rollout's sample as bytes", "one form for every store, which brings its own frame and checksum"},
	{"store/lock", nil, nil, nil,
		"one process at a time in a directory", "it holds a file and knows nothing of what is in the directory"},
	{"store/jetstream", []string{"drive/live", "loop", "loop/trace", "store/weights", "store/payload", "store/lock"}, []string{"github.com/nats-io/", "golang.org/x/sys"}, nil,
		"a run's log, payloads and snapshots in NATS JetStream, one writer at a time", "adapters know the ports and never each other"},
	{"store/storetest", []string{"drive/live", "loop", "loop/trace"}, nil, nil,
		"what every store must pass", "it knows the port alone, so that every store is held to the same"},
	{"train/tinker", []string{"drive/live", "loop", "train/grpo", "internal/tinker", "train/sequence"}, nil, nil,
		"training by a service of Tinker's API, and what it has saved", "adapters know the ports and never each other"},
	{"train/sequence", []string{"drive/live", "loop", "train/grpo"}, nil, nil,
		"a batch as sequences with advantages and lags, and what a step on them says of itself", "what trainers in this process share: it computes no gradient of a model"},
	{"train/remote", []string{"drive/live", "loop", "api/protocol", "train/batch", "store/weights"}, nil, nil,
		"a trainer in another process: leases", "adapters know the ports and never each other"},
	{"env/sandbox", nil, nil, nil,
		"the port to boxes that code of the policy runs in", "it declares what a box is, and knows no technology, no task and no loop"},
	{"env/sandbox/agent", []string{"env/sandbox"}, []string{"golang.org/x/sys"}, nil,
		"the program inside a box that runs commands there, and the words to it", "it is the first thing in a box: it starts in milliseconds and knows nothing of who asks"},
	{"env/sandbox/host", []string{"env/sandbox", "env/sandbox/agent"}, []string{"golang.org/x/sys"}, nil,
		"what local drivers keep on their host: directories of boxes, control groups", "it counts and bounds, and starts nothing"},
	{"env/sandbox/process", []string{"env/sandbox", "env/sandbox/agent", "env/sandbox/host"}, []string{"golang.org/x/sys"}, nil, "plain processes: no boundary", "a driver knows the port and never another driver"},
	{"env/sandbox/bwrap", []string{"env/sandbox", "env/sandbox/agent", "env/sandbox/host"}, []string{"golang.org/x/sys"}, nil, "namespaces by bubblewrap, limits by control groups", "a driver knows the port and never another driver"},
	{"env/sandbox/runsc", []string{"env/sandbox", "env/sandbox/agent", "env/sandbox/host"}, []string{"golang.org/x/sys"}, nil, "gVisor", "a driver knows the port and never another driver"},
	{"env/sandbox/swerex", []string{"env/sandbox"}, nil, nil, "SWE-ReX servers", "a driver knows the port and never another driver"},
	{"env/sandbox/shell", []string{"env/sandbox"}, nil, nil,
		"what a box is asked, as scripts of a shell", "it knows the port and no machine that would run them"},
	{"internal/kubernetes", nil, []string{"github.com/goccy/go-yaml"}, nil,
		"Kubernetes' API: whose, by whom, requests and refusals", "it knows nothing of what is asked for, so that drivers of boxes and of engines can both ask"},
	{"internal/kubernetes/kubernetestest", []string{"internal/kubernetes"}, []string{"github.com/goccy/go-yaml"}, nil,
		"a real control plane of Kubernetes for tests, which play its scheduler and its kubelet", "it knows nothing of what drivers ask, so that all are tested against the same"},
	{"env/sandbox/kubernetes", []string{"env/sandbox", "env/sandbox/shell", "internal/kubernetes"}, []string{"github.com/coder/websocket"}, nil, "agent-sandbox on Kubernetes", "a driver knows the port and never another driver"},
	{"env/sandbox/e2b", []string{"env/sandbox", "env/sandbox/shell"}, nil, nil, "E2B's hosted sandboxes", "a driver knows the port and never another driver"},
	{"env/sandbox/pool", []string{"env/sandbox"}, []string{"github.com/prometheus/client_golang"}, nil,
		"boxes on demand: warm, bounded, tried again, found after a crash", "it knows the port alone, so that every driver gets the same pool"},
	{"env/sandbox/sandboxtest", []string{"env/sandbox"}, nil, nil,
		"what every driver must pass, and what must stay inside", "it knows the port alone, so that every driver is held to the same"},
	{"env/taskset", []string{"internal/spelling"}, []string{"github.com/parquet-go/parquet-go", "github.com/BurntSushi/toml", "github.com/klauspost/compress"}, nil,
		"prompts that are data", "it reads and counts tasks, and plays none"},
	{"env/verifier", []string{"env/sandbox", "env/taskset"}, []string{"go.starlark.net"}, nil,
		"who judges a rollout", "a case in, a verdict out: it knows no loop and no engine"},
	{"env/episode", []string{"env/sandbox", "env/taskset", "env/verifier"}, nil, nil,
		"one rollout of a task that is text, turn by turn", "policy and world are ports: it knows no gateway, no engine and no driver"},
	{"env/episode/openenv", []string{"env/episode", "env/sandbox", "env/taskset"}, []string{"github.com/coder/websocket"}, nil,
		"environments that speak OpenEnv", "a world knows the port and never another world"},
	{"observe/attribution", []string{"loop", "observe/metrics"}, nil, nil,
		"where staleness and idle time come from", "it folds what any driver observed, and knows none"},
	{"internal/tfevents", nil, nil, nil,
		"TensorBoard's event files, written and read", "a file format: it knows nothing of what the scalars mean"},
	{"explain/foreign/wandb", nil, nil, nil,
		"the run files of the wandb library, read", "a file format: it knows nothing of what the keys mean"},
	{"explain/foreign", []string{"explain/foreign/wandb", "internal/tfevents", "internal/spelling"}, []string{"gonum.org/v1/gonum", "github.com/goccy/go-yaml"}, nil,
		"other frameworks' logs in our terms", "it reads and judges nothing"},
	{"app/sink", []string{"loop", "internal/tfevents", "env/episode"}, []string{"go.opentelemetry.io/", "google.golang.org/protobuf"}, nil,
		"a run's figures sent to trackers of others", "it is handed figures: it knows no run, and cannot slow one down"},
	{"explain/diagnosis", []string{"observe/attribution", "explain/foreign", "config", "loop", "loop/workload", "predict/theory", "drive/sim", "observe/metrics", "drive/replay", "observe/estimate", "predict/doctor", "loop/trace", "observe/report", "internal/parallel"}, []string{"gonum.org/v1/gonum"}, nil,
		"what a run's staleness and idle time cost, and what each change would buy", "it judges what was recorded: it starts nothing but simulations"},
	{"explain/dashboard", []string{"observe/attribution", "explain/diagnosis", "api/protocol", "loop", "observe/metrics", "loop/workload", "predict/theory", "predict/schedule", "observe/timeline", "config", "store/payload", "env/episode"}, nil, nil,
		"what a browser shows of a run: pages, and the data behind them", "it observes events whoever brings them, and knows no driver and no store"},
	{"explain/dashboard/browser", nil, []string{"github.com/chromedp/"}, nil,
		"the dashboard in Chromium, against the built program: tests alone", "it sees what a user sees: the program from outside, and its pages"},
	{"env/episode/player", []string{"env/episode", "env/sandbox", "env/taskset", "env/verifier", "api/protocol", "loop"}, nil, nil,
		"workers inside the control plane: they claim rollouts, play their episodes and finish them", "they use the words that workers elsewhere use, so that both are played alike"},
	{"env/code", []string{"env", "drive/live", "loop", "env/sandbox", "env/episode", "env/verifier", "env/taskset", "internal/spelling"}, nil, nil,
		"a task whose responses are programs, judged by running them", "adapters know the ports and never each other"},
	{"env/remote", []string{"drive/live", "loop", "api/protocol"}, nil, nil,
		"an environment played by workers in other processes: claims", "adapters know the ports and never each other"},
	{"train", []string{"drive/live", "loop", "internal/transformer", "train/grpo", "train/microbatch", "store/weights", "train/sequence"}, []string{"gonum.org/v1/gonum"}, nil,
		"trainers, one folder per technology", "adapters know the ports and never each other"},
	{"env", []string{"drive/live", "loop", "loop/workload", "internal/spelling"}, nil, nil,
		"tasks and their verifiers", "adapters know the ports and never each other"},
	{"store/weights", []string{"drive/live", "loop", "internal/transformer"}, []string{"github.com/klauspost/compress"}, nil,
		"weight files: safetensors, manifests, deltas and casts", "adapters know the ports and never each other"},
	{"store", []string{"drive/live", "loop", "loop/trace", "store/payload", "store/lock"}, []string{"golang.org/x/sys"}, nil,
		"durable runs, one folder per technology", "adapters know the ports and never each other"},
	{"config", []string{"loop", "loop/workload", "internal/spelling"}, []string{"github.com/goccy/go-yaml"}, nil,
		"the one schema of every command", "a document can be checked without anything that would run it"},
	{"observe/report", []string{"observe/metrics", "predict/theory", "observe/bias"}, []string{"gonum.org/v1/"}, nil,
		"tables, SVG plots, self-contained HTML", "it prints what it is given, so that a simulation and a run look alike"},
	{"cmd/lab/bench/queue", []string{"cmd/lab/bench/python", "drive/live", "loop", "store/payload", "store/jetstream"}, []string{"github.com/nats-io/"}, nil,
		"the durable queue beside raw JetStream and the queues of others", "producers and consumers of the store itself, without a run around it"},
	{"cmd/lab/bench/sandboxes", []string{"env/sandbox", "env/sandbox/pool", "env/sandbox/process", "env/sandbox/bwrap", "env/sandbox/runsc"}, nil, nil,
		"what sandboxes cost: starts, warm boxes, failures", "drivers and the pool themselves, without a run around them"},
	{"cmd/lab/bench/paired", nil, []string{"gonum.org/v1/gonum"}, nil,
		"two commits measured in turn, their ratio with its interval", "it builds and counts, and knows nothing of what is measured"},
	{"cmd/lab/bench", []string{"cmd/lab/bench/paired", "cmd/lab/bench/python", "cmd/lab/bench/plane"}, nil, nil,
		"experiments that print a table: `make bench`", "it runs the program as a user would, from outside"},
	{"internal/quoted", nil, nil, nil,
		"the commands, paths and links that pages quote: tests alone", "it reads pages and knows nothing of what they quote"},
	{"internal/lint", nil, []string{"golang.org/x/mod"}, nil,
		"the architecture as tests", "it judges every room and leans on none"},
}

// testModules are what tests may import beyond their room's rule.
var testModules = []string{"github.com/cockroachdb/datadriven", "gonum.org/v1/gonum", "github.com/goccy/go-yaml", "github.com/klauspost/compress", "github.com/coder/websocket"}

// ruleOf returns the rule of a room.
func ruleOf(room string) (rule, bool) {
	best, found := rule{}, false
	for _, candidate := range rules {
		if within(room, candidate.room) && (!found || len(candidate.room) > len(best.room)) {
			best, found = candidate, true
		}
	}
	return best, found
}

func TestImports(t *testing.T) {
	for _, f := range sources(t) {
		rule, ok := ruleOf(f.room)
		if !ok {
			t.Errorf("%s: the room %s has no import rule: add one, with its reason, to rules", f.path, f.room)
			continue
		}
		for imported, spec := range f.imports(t) {
			if why := refused(rule, f, imported); why != "" {
				t.Errorf("%s:%d: imports %s: %s", f.path, line(spec.Pos()), imported, why)
			}
		}
	}
}

// refused says why a file may not import a package, "" when it may.
func refused(r rule, f file, imported string) string {
	inside, ours := strings.CutPrefix(imported, module+"/")
	switch {
	case ours && (within(inside, "cmd/headway", "internal/lint") || within(inside, "cmd") && !within(f.room, "cmd")):
		return "nothing imports a command or the lint"
	case ours && f.test:
		return "" // a test may set up what it needs around its room
	case ours && (inside == f.room || slices.Contains(r.may, "*") || slices.Contains(r.may, inside)):
		return ""
	case ours:
		return fmt.Sprintf("%s may import of this repository %v, because %s", r.room, r.may, r.why)
	case imported == "C":
		return "the project builds without cgo"
	case !strings.Contains(strings.Split(imported, "/")[0], "."):
		if r.standard != nil && !f.test && !slices.Contains(r.standard, imported) {
			return fmt.Sprintf("%s may import of the standard library %v, because %s", r.room, r.standard, r.why)
		}
		return ""
	}
	for _, allowed := range r.modules {
		if strings.HasPrefix(imported, allowed) {
			return ""
		}
	}
	for _, allowed := range testModules {
		if f.test && strings.HasPrefix(imported, allowed) {
			return ""
		}
	}
	return fmt.Sprintf("%s may import of other modules %v; a dependency is a decision: docs/dependencies.md", r.room, r.modules)
}

// A rule for a room that is gone would rot.
func TestRulesHaveRooms(t *testing.T) {
	for _, r := range rules {
		if !slices.ContainsFunc(sources(t), func(f file) bool { return within(f.room, r.room) }) {
			t.Errorf("the rule for %s has no files: take it out until there are some", r.room)
		}
	}
}

// The rules refuse what they are there for.
func TestRefusals(t *testing.T) {
	tests := []struct {
		room, imported string
		test, allowed  bool
	}{
		{"loop", "time", false, false},
		{"loop", "time", true, true},
		{"loop", module + "/loop/trace", false, false},
		{"loop", "strings", false, true},
		{"train/embedded", module + "/engine/embedded", false, false},
		{"train/embedded", module + "/train/grpo", false, true},
		{"drive/live", module + "/store/file", false, false},
		{"drive/sim", module + "/drive/live", false, false},
		{"predict/theory", module + "/drive/sim", false, false},
		{"predict/theory", module + "/drive/sim", true, true},
		{"observe/report", "github.com/alecthomas/kong", false, false},
		{"observe/report", module + "/cmd/headway", true, false},
		{"internal/transformer", "C", false, false},
	}
	for _, test := range tests {
		r, ok := ruleOf(test.room)
		if !ok {
			t.Fatalf("no rule for %s", test.room)
		}
		why := refused(r, file{room: test.room, test: test.test}, test.imported)
		if (why == "") != test.allowed {
			t.Errorf("%s importing %s (test %v): allowed %v, want %v: %s", test.room, test.imported, test.test, why == "", test.allowed, why)
		}
	}
}

// The map of rooms in docs/ARCHITECTURE.md is the rules above.
func TestArchitectureIsCurrent(t *testing.T) {
	var table strings.Builder
	table.WriteString("| room | what it is | may import | because |\n|---|---|---|---|\n")
	for _, r := range rules {
		may := strings.Join(r.may, " ")
		switch may {
		case "":
			may = "–"
		case "*":
			may = "everything"
		}
		fmt.Fprintf(&table, "| `%s` | %s | %s | %s |\n", r.room, r.what, may, r.why)
	}
	generated(t, "docs/ARCHITECTURE.md", "rooms", table.String())
}

// between replaces what stands between the markers of a generated part.
func between(text, name, part string) (string, error) {
	begin, end := "<!-- generated: "+name+" -->\n", "<!-- end: "+name+" -->\n"
	i, j := strings.Index(text, begin), strings.Index(text, end)
	if i < 0 || j < i {
		return "", fmt.Errorf("lacks the lines %q and %q", begin, end)
	}
	return text[:i+len(begin)] + part + text[j:], nil
}
