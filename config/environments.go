package config

// Environment is what a run's policy is trained on.
type Environment struct {
	// Kind of environment. With remote, workers of yours claim rollouts from headway serve. With tasks, headway serve plays the tasks of a file, with tools in sandboxes and a verifier. With openenv, it plays on a server that speaks OpenEnv. Default embedded, remote where an engine is not.
	Kind string `json:"kind" allowed:"embedded remote tasks openenv"`
	// Name by which workers claim the rollouts of an environment that is not embedded. Default the task's, rollouts where engines are servers.
	Name string `json:"name,omitempty"`
	// PromptTokensMax is the longest prompt in tokens, earlier turns included, of rollouts on engines other than embedded; with response_tokens_max at most the model's context. Default the context that its config.json says, less response_tokens_max.
	PromptTokensMax int `json:"prompt_tokens_max,omitempty" min:"1" max:"1048576"`
	// ResponseTokensMax is the longest response in tokens of one turn on engines other than embedded. Default a quarter of the model's context.
	ResponseTokensMax int `json:"response_tokens_max,omitempty" min:"1" max:"1048576"`
	// Task: reverse a word, sort its letters, add two numbers, or write a program that passes hidden tests in a sandbox (code). Default reverse.
	Task string `json:"task" allowed:"reverse sort addition code"`
	// Language of the programs of code. Default python.
	Language string `json:"language,omitempty" allowed:"python go"`
	// OperationsMin is the least number of operations of a program of code. Default 1.
	OperationsMin int `json:"operations_min,omitempty" min:"1" max:"8"`
	// OperationsMax is the greatest. Default 4.
	OperationsMax int `json:"operations_max,omitempty" min:"1" max:"8"`
	// Tests is the number of hidden tests of a program of code. Default 8.
	Tests int `json:"tests,omitempty" min:"1" max:"64"`
	// ProgramS is the processor time that a program of code may take for all of its tests, in seconds. Default 0.2.
	ProgramS float64 `json:"program_s,omitempty" above:"0" max:"60"`
	// LettersMin is the shortest word of reverse and sort. Default 2.
	LettersMin int `json:"letters_min" min:"1" max:"64"`
	// LettersMax is the longest word of reverse and sort. Default 5.
	LettersMax int `json:"letters_max" min:"1" max:"64"`
	// HeldOut is the number of prompts kept for evaluation, never trained on. Default 1000.
	HeldOut int `json:"held_out" min:"1" max:"10000000"`
	// ServiceTime is the time that a rollout of a run waits, as if for tools and sandboxes. Simulations reckon with modelled.environment, which is the same unless given. Default none.
	ServiceTime TimeModel `json:"service_time"`
	// SupervisedSteps is the number of supervised steps before reinforcement learning begins; 0 for none. Default 1200 for addition, else 0.
	SupervisedSteps int `json:"supervised_steps" min:"0" max:"1000000"`
	// Tasks are the prompts of kind tasks; with openenv they may be left out.
	Tasks Tasks `json:"tasks,omitempty"`
	// Verifier says who judges the rollouts of kinds tasks and openenv.
	Verifier Verifier `json:"verifier,omitempty"`
	// Tools that the policy may call in its sandbox: shell, python, write_file, read_file. Default none.
	Tools []string `json:"tools,omitempty" allowed:"shell python write_file read_file"`
	// OpenEnv is the server of kind openenv.
	OpenEnv OpenEnv `json:"openenv,omitempty"`
	// TurnsMax is the most messages of the policy in one rollout; a task may say fewer. Default 16 with tools or openenv, else 1.
	TurnsMax int `json:"turns_max,omitempty" min:"1" max:"100000"`
	// TimeoutS is how long a rollout may take in all, in seconds, before its attempt fails; a task may say less. Default 1800.
	TimeoutS float64 `json:"timeout_s,omitempty" above:"0" max:"604800"`
	// Players is the number of rollouts that this process plays at once. Default rollout.concurrency.
	Players int `json:"players,omitempty" min:"1" max:"16777216"`
	// OnLimit says what becomes of a rollout whose code met a limit of its sandbox, by limit. Default the verifier judges what came of it.
	OnLimit OnLimit `json:"on_limit,omitempty"`
}

// Sandbox is what code of the policy runs in, in a run. Simulations use
// modelled.sandbox instead; neither section takes values from the other.
type Sandbox struct {
	// Driver makes the sandboxes: bwrap (namespaces by bubblewrap, limits by control groups), runsc (gVisor), swerex (a SWE-ReX server), kubernetes (agent-sandbox), e2b, or process. Driver process runs plain processes of this user, which is no boundary and takes boundary none. Default bwrap.
	Driver string `json:"driver,omitempty" allowed:"process bwrap runsc swerex kubernetes e2b"`
	// Boundary none says that code of the policy may run where nothing keeps it from the files, processes and network of this user. Driver process takes it, and swerex and kubernetes without isolated. Default a run begins with a boundary alone.
	Boundary string `json:"boundary,omitempty" allowed:"none"`
	// Root is the directory of a root file system, which bwrap and runsc give every sandbox to read. Default the host's own programs, without its data.
	Root string `json:"root,omitempty"`
	// Image names what kubernetes or e2b start a sandbox from: an image, or a template. Default the backend's own.
	Image string `json:"image,omitempty"`
	// URLs of the swerex servers, each such as http://host:8000.
	URLs []string `json:"urls,omitempty"`
	// ServerBoxes is the number of sandboxes that one swerex server has at once; they see one another. Default 1.
	ServerBoxes int `json:"server_boxes,omitempty" min:"1" max:"100000"`
	// Isolated says that the containers or pods of swerex or kubernetes keep files, processes and network apart from all that matters. Headway cannot find that out. Default false: code of the policy then runs there with boundary none alone.
	Isolated bool `json:"isolated,omitempty"`
	// URL of the API of e2b. Default that of e2b itself.
	URL string `json:"url,omitempty"`
	// KeyFile holds the secret that swerex or e2b asks for.
	KeyFile string `json:"key_file,omitempty"`
	// Mounts are further directories of the host that every sandbox may read. Default none.
	Mounts []SandboxMount `json:"mounts,omitempty"`
	// Env is the environment of commands, as NAME=VALUE; nothing of headway's own is handed in. It is written into the run's log: no place for secrets. Default none.
	Env []string `json:"env,omitempty"`
	// Network lets sandboxes reach the host's network. Default false.
	Network bool `json:"network,omitempty"`
	// MemoryMB is the memory of all processes of a sandbox together, in MiB. Default 512.
	MemoryMB int `json:"memory_mb,omitempty" min:"16" max:"4194304"`
	// CPUs is the processor time that a sandbox may use a second, in seconds. Default 1.
	CPUs float64 `json:"cpus,omitempty" min:"0.01" max:"4096"`
	// Processes at once in a sandbox, threads counted. Default 128.
	Processes int `json:"processes,omitempty" min:"4" max:"4194304"`
	// DiskMB is what may be written to a sandbox's files, in MiB; where it lies in memory it counts there, too. Default 256.
	DiskMB int `json:"disk_mb,omitempty" min:"1" max:"16777216"`
	// Files there may be in a sandbox. Default 50000.
	Files int `json:"files,omitempty" min:"16" max:"1000000000"`
	// OutputKB is how much is kept of each stream of a command, in KiB; the rest is thrown away. Default 1024.
	OutputKB int `json:"output_kb,omitempty" min:"1" max:"1048576"`
	// TimeoutS is how long one command may run, in seconds. Default 60.
	TimeoutS float64 `json:"timeout_s,omitempty" above:"0" max:"86400"`
	// Max is the number of sandboxes there may be at once; a rollout without one waits. Default no limit.
	Max int `json:"max,omitempty" min:"1" max:"16777216"`
	// Starting is the number that may start at once. Default 4 for every processor.
	Starting int `json:"starting,omitempty" min:"1" max:"1000000"`
	// WarmMin is the least number of sandboxes that stand ready before anybody asks. Default 0.
	WarmMin int `json:"warm_min,omitempty" min:"0" max:"1000000"`
	// WarmMax is the most that stand ready; between the two it follows what was asked for while one starts. Default warm_min.
	WarmMax int `json:"warm_max,omitempty" min:"0" max:"1000000"`
	// Reuse says what happens to a sandbox when a rollout is done with it. Value never ends it. Value reset makes it as if it were new and gives it to another rollout. Default never.
	Reuse string `json:"reuse,omitempty" allowed:"never reset"`
	// Uses is how many rollouts one sandbox serves under reuse reset. Default 100.
	Uses int `json:"uses,omitempty" min:"1" max:"1000000"`
	// StartTimeoutS is the longest that a start may take, its wait for others included, in seconds. Default 30.
	StartTimeoutS float64 `json:"start_timeout_s,omitempty" above:"0" max:"86400"`
	// Retries is how often a start that failed is tried again before the rollout's attempt fails. Default 2.
	Retries int `json:"retries,omitempty" min:"0" max:"1000"`
	// BreakAfter is the number of failed starts in a row after which none is tried for a while. Default 8.
	BreakAfter int `json:"break_after,omitempty" min:"1" max:"1000000"`
	// BreakForS is for how long then, in seconds. Default 5.
	BreakForS float64 `json:"break_for_s,omitempty" above:"0" max:"86400"`
	// Kubernetes says where agent-sandbox is, for driver kubernetes.
	Kubernetes Kubernetes `json:"kubernetes,omitempty"`
	// E2B says more of driver e2b, whose template is image.
	E2B E2B `json:"e2b,omitempty"`
}

// E2B says how sandboxes of E2B are used.
type E2B struct {
	// User that commands run as. Default user.
	User string `json:"user,omitempty"`
	// LifetimeS is how long an unused sandbox lives on, as after a crash, in seconds. It is lengthened while the sandbox is used. Default 300.
	LifetimeS float64 `json:"lifetime_s,omitempty" min:"15" max:"86400"`
	// Envd is the address of the daemon in a sandbox, with {id} and {domain} in it, where the API is one of your own. Default that of e2b itself.
	Envd string `json:"envd,omitempty"`
}

// SandboxMount is a directory of the host as sandboxes see it.
type SandboxMount struct {
	// Host is the directory's absolute path on the host.
	Host string `json:"host"`
	// Box is its absolute path in the sandbox. Default the same.
	Box string `json:"box,omitempty"`
}

// Kubernetes says where agent-sandbox is.
type Kubernetes struct {
	// Config is a kubeconfig file. Default that of KUBECONFIG or the home directory; in a cluster the pod's own account.
	Config string `json:"config,omitempty"`
	// Context of the kubeconfig. Default its current one.
	Context string `json:"context,omitempty"`
	// Namespace that sandboxes are made in. Default the context's own.
	Namespace string `json:"namespace,omitempty"`
	// WarmPool names a SandboxWarmPool that sandboxes are claimed from. Default none: each is made from image.
	WarmPool string `json:"warm_pool,omitempty"`
	// RuntimeClass of the pods, such as gvisor, without a warm pool. Default the cluster's.
	RuntimeClass string `json:"runtime_class,omitempty"`
}

// Tasks are the prompts of environment.kind tasks: a file, and which of its fields are what.
type Tasks struct {
	// File is JSON lines, Parquet, or a directory of either or of Harbor tasks, which are then judged by verifier.kind tests.
	File string `json:"file,omitempty"`
	// HeldOutFile has tasks for evaluation alone, as file has those to train on. Default none.
	HeldOutFile string `json:"held_out_file,omitempty"`
	// HeldOut is the share of the prompts of file that is kept for evaluation and never trained on. Default 0.
	HeldOut float64 `json:"held_out,omitempty" min:"0" below:"1"`
	// SettledAfter is the number of judged attempts after which a task that was always solved, or never, is played less: it teaches nothing. Default 0: all are played alike.
	SettledAfter int `json:"settled_after,omitempty" min:"0" max:"1000000000"`
	// SettledShare is the share of its turns that such a task is played all the same, so that it is noticed when that changes. Default 0.1.
	SettledShare float64 `json:"settled_share,omitempty" min:"0" max:"1"`
	// ID is the field with a task's id, which is unique; a dot goes into an object, as in extra.id. Default id, or the task's place in the file where there is none.
	ID string `json:"id,omitempty"`
	// Prompt is the field with the prompt: text, or a list of chat messages. Default prompt, else messages.
	Prompt string `json:"prompt,omitempty"`
	// System is the text of a system message before every prompt that has none. Default none.
	System string `json:"system,omitempty"`
	// Answer is the field that the verifier compares with, which the policy never sees. Default answer.
	Answer string `json:"answer,omitempty"`
	// Level is the field with the difficulty, from 1. Default level, where there is one.
	Level string `json:"level,omitempty"`
	// Files is the field with files that are put into the sandbox first: an object of contents by path. Default files, where there is one.
	Files string `json:"files,omitempty"`
	// Hidden is the field with files that are put there when the policy is done, before the verdict. Default hidden, where there is one.
	Hidden string `json:"hidden,omitempty"`
	// Test is the field with the command that judges in the sandbox. Default test, where there is one.
	Test string `json:"test,omitempty"`
}

// Verifier says who judges the rollouts of tasks.
type Verifier struct {
	// Kind of verifier. Kind exact compares the last message with the answer; starlark evaluates an expression or a program of yours. Kind command asks a program, a JSON line in and one out; http asks a server. Kind tests runs the task's test in the sandbox. Kind none is for environments that give the rewards themselves, and for tasks that a teacher of scoring.servers judges, whose reward is 0. Default by what else is said here, none for openenv, tests with tasks.test and where tasks have tests and no answers, else exact.
	Kind string `json:"kind,omitempty" allowed:"exact starlark command http tests none"`
	// Extract says where in the last message the answer is, for kind exact: all of it, or its last line (last-line). Value marker takes the text behind the last marker, boxed that in the last \boxed{}. Value pattern takes the first group of the pattern's last match. Default marker or pattern where that key is given, else all of it.
	Extract string `json:"extract,omitempty" allowed:"last-line marker boxed pattern"`
	// Marker is the text before the answer, with extract marker.
	Marker string `json:"marker,omitempty"`
	// Pattern is a regular expression, with extract pattern.
	Pattern string `json:"pattern,omitempty"`
	// IgnoreCase compares without regard to upper case. Default false.
	IgnoreCase bool `json:"ignore_case,omitempty"`
	// IgnoreSpace compares with every run of white space as one blank. Default false.
	IgnoreSpace bool `json:"ignore_space,omitempty"`
	// Text compares numbers as text, where otherwise 0.50 and 1/2 are the same. Default false.
	Text bool `json:"text,omitempty"`
	// Tolerance is the share of the answer by which a number may differ from it. Default 0.
	Tolerance float64 `json:"tolerance,omitempty" min:"0" max:"1"`
	// Expression is Starlark over response, answer, task and messages, whose value is the reward; or a program that defines verify of them.
	Expression string `json:"expression,omitempty"`
	// File has such a program, instead of expression.
	File string `json:"file,omitempty"`
	// Command is the program and its arguments, for kind command.
	Command []string `json:"command,omitempty"`
	// URL is asked with POST, for kind http.
	URL string `json:"url,omitempty"`
	// KeyFile holds a secret that the server of url is sent as a bearer token.
	KeyFile string `json:"key_file,omitempty"`
	// Test is the command that judges in the sandbox where a task has none of its own, for kind tests.
	Test string `json:"test,omitempty"`
	// RewardKey is the entry of reward.json that counts, for kind tests. Default reward.
	RewardKey string `json:"reward_key,omitempty"`
	// Source says where the reward of tests is read, for kind tests. Source line is the result line with its token. Source exit is the exit code alone; a test that runs the policy's code may leave the exit code to that code. Source file is reward.json or reward.txt. Default file for Harbor's tasks, else line.
	Source string `json:"source,omitempty" allowed:"line exit file"`
	// Range is the least and the greatest reward; one outside is a failure of the verifier. Default 0 and 1.
	Range []float64 `json:"range,omitempty" min:"-1e9" max:"1e9"`
	// Concurrency is the number of rollouts judged at once; others wait. Default 4 for command, 8 for exact and starlark, 32 for http, 64 for tests.
	Concurrency int `json:"concurrency,omitempty" min:"1" max:"1000000"`
	// TimeoutS is how long one verdict may take, retries included, in seconds. Default 30, and 600 for tests.
	TimeoutS float64 `json:"timeout_s,omitempty" above:"0" max:"86400"`
	// Retries is how often a verifier that failed is asked again before the rollout's attempt fails. Default 2.
	Retries int `json:"retries,omitempty" min:"0" max:"100"`
}

// OpenEnv is an environment that is a server and speaks OpenEnv.
type OpenEnv struct {
	// URL of the server, such as http://host:8000.
	URL string `json:"url,omitempty"`
	// KeyFile holds a secret that the server is sent as a bearer token.
	KeyFile string `json:"key_file,omitempty"`
	// Mode says how a message of the policy becomes an action. Under text, a field of the action takes the message. Under json, the message has the action as a JSON object. Under act, it calls a tool whose arguments are the action. Under tools, it calls the server's own tools. Default by the server's schema.
	Mode string `json:"mode,omitempty" allowed:"text json act tools"`
	// Action is the field of the action that takes the message's text. Default the only one that can.
	Action string `json:"action,omitempty"`
	// Observation is the field of the observation that the policy is shown. Default the whole observation as JSON.
	Observation string `json:"observation,omitempty"`
	// StepS is how long one step may take, in seconds. Default 60.
	StepS float64 `json:"step_s,omitempty" above:"0" max:"86400"`
}

// OnLimit says what becomes of a rollout whose code met a limit of its sandbox.
type OnLimit struct {
	// OutOfMemory: score lets the verifier judge what came of it, fail ends the attempt as failed, which is never a reward. Default score.
	OutOfMemory string `json:"out_of_memory,omitempty" allowed:"score fail"`
	// Timeout is the same for a command that ran too long. Default score.
	Timeout string `json:"timeout,omitempty" allowed:"score fail"`
	// Processes is the same for too many processes. Default score.
	Processes string `json:"processes,omitempty" allowed:"score fail"`
	// Disk is the same for a full disk, or too many files. Default score.
	Disk string `json:"disk,omitempty" allowed:"score fail"`
	// Output is the same for a command that was ended because it wrote too much. Default score.
	Output string `json:"output,omitempty" allowed:"score fail"`
}

// Defaults of environments that this process plays.
const (
	turnsDefault           = 16
	rolloutTimeoutDefaultS = 1800
	retriesDefault         = 2
	commandTimeDefaultS    = 60
	startTimeoutDefaultS   = 30
	settledShareDefault    = 0.1
)

// Played reports whether rollouts are chats that players inside the control plane play.
func (e Environment) Played() bool { return e.Kind == "tasks" || e.Kind == "openenv" }

// UsesSandbox reports whether a run has sandboxes, since it runs code of the policy: see [Config.RunsCode].
func (c Config) UsesSandbox() bool { return c.RunsCode() != "" }

// RunsCode names the key for which a run executes code of its policy, and is empty for a run that executes none. The
// policy has tools, its tasks are judged where its code runs, or its embedded task is programs.
func (c Config) RunsCode() string {
	e := c.Environment
	switch {
	case e.Kind == "tasks" && len(e.Tools) > 0:
		return "environment.tools"
	case e.Kind == "tasks" && e.Verifier.Kind == "tests":
		return "environment.verifier.kind tests"
	case e.Kind == "embedded" && e.Task == "code":
		return "environment.task code"
	}
	return ""
}

// playedDefaults fills in how rollouts are played inside the control plane, and what in.
func (c *Config) playedDefaults() {
	e := &c.Environment
	if e.Played() {
		orCount(&e.Players, c.Rollout.Concurrency, c.given("environment.players"))
		orNumber(&e.TimeoutS, rolloutTimeoutDefaultS, c.given("environment.timeout_s"))
		orWord(&e.Verifier.Kind, e.verifierKind())
		turns := 1
		if e.Kind == "openenv" || len(e.Tools) > 0 {
			turns = turnsDefault
		}
		orCount(&e.TurnsMax, turns, c.given("environment.turns_max"))
		if e.Verifier.Kind != "none" {
			orWord(&e.Verifier.Extract, e.Verifier.extract())
			orCount(&e.Verifier.Retries, retriesDefault, c.given("environment.verifier.retries"))
			if len(e.Verifier.Range) == 0 && !c.given("environment.verifier.range") {
				e.Verifier.Range = []float64{0, 1}
			}
		}
	}
	if e.Tasks.SettledAfter > 0 {
		orNumber(&e.Tasks.SettledShare, settledShareDefault, c.given("environment.tasks.settled_share"))
	}
	if e.Task == "code" {
		orWord(&e.Language, "python")
		orCount(&e.OperationsMin, 1, c.given("environment.operations_min"))
		orCount(&e.OperationsMax, 4, c.given("environment.operations_max"))
		orCount(&e.Tests, 8, c.given("environment.tests"))
		orNumber(&e.ProgramS, 0.2, c.given("environment.program_s"))
	}
	if c.UsesSandbox() || c.says(c.Sandbox, "sandbox") {
		c.sandboxDefaults()
	}
}

// sandboxDefaults fills in what a sandbox is and how many there are.
func (c *Config) sandboxDefaults() {
	s := &c.Sandbox
	orWord(&s.Driver, "bwrap")
	orWord(&s.Reuse, "never")
	orCount(&s.MemoryMB, 512, c.given("sandbox.memory_mb"))
	orNumber(&s.CPUs, 1, c.given("sandbox.cpus"))
	orCount(&s.Processes, 128, c.given("sandbox.processes"))
	orCount(&s.DiskMB, 256, c.given("sandbox.disk_mb"))
	orCount(&s.Files, 50000, c.given("sandbox.files"))
	orCount(&s.OutputKB, 1024, c.given("sandbox.output_kb"))
	orNumber(&s.TimeoutS, commandTimeDefaultS, c.given("sandbox.timeout_s"))
	orNumber(&s.StartTimeoutS, startTimeoutDefaultS, c.given("sandbox.start_timeout_s"))
	orCount(&s.Retries, retriesDefault, c.given("sandbox.retries"))
	if s.WarmMin > 0 {
		orCount(&s.WarmMax, s.WarmMin, c.given("sandbox.warm_max"))
	}
	for i := range s.Mounts {
		orWord(&s.Mounts[i].Box, s.Mounts[i].Host)
	}
}

// verifierKind is what a verifier is that says no kind.
func (e Environment) verifierKind() string {
	v := e.Verifier
	switch {
	case v.Expression != "" || v.File != "":
		return "starlark"
	case len(v.Command) > 0:
		return "command"
	case v.URL != "":
		return "http"
	case e.Kind == "openenv":
		return "none"
	case e.Tasks.Test != "" || v.Test != "":
		return "tests"
	}
	return "exact"
}

// extract is where the answer is by what else is said.
func (v Verifier) extract() string {
	switch {
	case v.Kind == "exact" && v.Marker != "":
		return "marker"
	case v.Kind == "exact" && v.Pattern != "":
		return "pattern"
	}
	return ""
}
