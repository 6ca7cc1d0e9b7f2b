package starter

import (
	"slices"
	"strings"

	"github.com/headway-rl/headway/internal/failure"
)

// Choice says of which parts a project is made. A part that is empty is not chosen yet.
type Choice struct {
	Trainer     string `json:"trainer"`
	Engine      string `json:"engine"`
	Environment string `json:"environment"`
}

// Option is a value that a part of a [Choice] may have.
type Option struct {
	// Name is the value.
	Name string
	// Summary says what it stands for, in a few words.
	Summary string
	// fits are the engines of a trainer.
	fits []string
}

// The options of each part; the first is the usual one.
var (
	trainers = []Option{
		{"torch", "PyTorch, the embedded engine's small model", []string{"embedded"}},
		{"jax", "JAX, the embedded engine's small model", []string{"embedded"}},
		{"hf", "PyTorch, a model of transformers", []string{"vllm", "sglang", "llamacpp"}},
		{"distill", "PyTorch, a model of transformers that learns from a teacher", []string{"vllm", "sglang"}},
		{"tinker", "a service of Tinker's API, which samples, too", []string{"tinker"}},
		{"embedded", "Headway itself, the embedded engine's small model", []string{"embedded"}},
	}
	engines = []Option{
		{Name: "embedded", Summary: "Headway itself, a small model on the CPU"},
		{Name: "vllm", Summary: "vLLM, a server that you start"},
		{Name: "sglang", Summary: "SGLang, a server that you start"},
		{Name: "llamacpp", Summary: "llama-server, which Headway starts anew for each version"},
		{Name: "tinker", Summary: "a service of Tinker's API"},
	}
	environments = []Option{
		{Name: "python", Summary: "a function in Python asks, and judges the answer"},
		{Name: "tasks", Summary: "a file of tasks and a verifier, without a program"},
		{Name: "agent", Summary: "a program that speaks OpenAI's API plays"},
	}
)

// Part is one question of a [Choice].
type Part struct {
	// Name is the part's flag.
	Name string
	// Question is what it decides.
	Question string
	// Value is where the choice has it.
	Value *string
	// options are all that the part may be.
	options []Option
}

// Parts are the questions of a choice, in the order in which they are asked.
func (c *Choice) Parts() []Part {
	return []Part{
		{"trainer", "Which program trains?", &c.Trainer, trainers},
		{"engine", "Which engine samples?", &c.Engine, engines},
		{"environment", "Which program asks and judges?", &c.Environment, environments},
	}
}

// Open returns the options of a part that fit the parts chosen so far.
func (c *Choice) Open(p Part) []Option {
	return slices.DeleteFunc(slices.Clone(p.options), func(o Option) bool {
		with := *c
		switch p.Name {
		case "trainer":
			with.Trainer = o.Name
		case "engine":
			with.Engine = o.Name
		}
		return !with.fits()
	})
}

// fits reports whether trainer and engine go together, as far as they are chosen.
func (c *Choice) fits() bool {
	if c.Trainer == "" || c.Engine == "" {
		return true
	}
	i := slices.IndexFunc(trainers, func(o Option) bool { return o.Name == c.Trainer })
	return i >= 0 && slices.Contains(trainers[i].fits, c.Engine)
}

// Check refuses a value that a part does not have, and parts that do not go together. The error names what fits.
func (c *Choice) Check() error {
	for _, p := range c.Parts() {
		names := Names(p.options)
		if *p.Value != "" && !slices.Contains(names, *p.Value) {
			return failure.Usage("one of "+strings.Join(names, ", "), "--%s %s is no %s that init knows", p.Name, *p.Value, p.Name)
		}
	}
	if c.fits() {
		return nil
	}
	alone := Choice{Trainer: c.Trainer}
	takes := strings.Join(Names(alone.Open(alone.Parts()[1])), ", ")
	alone = Choice{Engine: c.Engine}
	taken := strings.Join(Names(alone.Open(alone.Parts()[0])), ", ")
	return failure.Usage("--trainer "+c.Trainer+" takes --engine "+takes+"; --engine "+c.Engine+" takes --trainer "+taken,
		"--trainer %s does not fit --engine %s", c.Trainer, c.Engine)
}

// Names are the names of options.
func Names(options []Option) []string {
	names := make([]string, len(options))
	for i, o := range options {
		names[i] = o.Name
	}
	return names
}
