package calibrate

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/headway-rl/headway/app/parts"
	"github.com/headway-rl/headway/config"
	engine "github.com/headway-rl/headway/engine/embedded"
	"github.com/headway-rl/headway/engine/upstream"
	"github.com/headway-rl/headway/env"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/loop/workload"
	measure "github.com/headway-rl/headway/predict/calibrate"
	"github.com/headway-rl/headway/store/weights"
)

// Request names an engine that is to be measured.
type Request struct {
	// Engine is the address of a server, or FILE#NAME: an engine of a document, without #NAME its first.
	Engine string
	// Model is the name by which a server of an address knows its model, empty for the first it lists; KeyFile has its API key.
	Model, KeyFile string
	// Slots is how many responses at once are measured at most; 0 for the document's, and 16 for an address.
	Slots int
	// Update are directories of weights between which the engine is switched, as its server sees them: none, one or two.
	Update []string
}

// Engine is an engine that is about to be measured.
type Engine struct {
	// Name is how it was named, an address in full. Kind is the engine's, Software the server's program, empty where
	// that is not known.
	Name, Kind, Software string

	engine port.Engine
	server *upstream.Engine // nil for an embedded one
	slots  int
	// vocabulary is the model's, context what prompt and response may have together, 0 for no bound, beside
	// spare places that the server keeps free; promptMax the longest prompt, 0 for what the context leaves.
	vocabulary, context, spare, promptMax int
	sampling                              *port.Sampling
	updates                               bool
	close                                 func() error
}

// Words say what it is.
func (m *Engine) Words() string { return cmp.Or(m.Software, m.Kind) }

// Close closes the engine.
func (m *Engine) Close() error { return m.close() }

// Options are those asked for, as far as the engine's context holds them. Prompts names a file of prompts whose responses
// are measured too, empty for none. The error blames the options.
func (m *Engine) Options(ctx context.Context, o measure.Options, prompts string) (measure.Options, error) {
	o.Engine, o.Slots, o.Vocabulary, o.Context, o.Sampling = m.engine, m.slots, m.vocabulary, m.context, m.sampling
	if over := o.PromptTokens + o.ResponseTokens - m.context; m.context > 0 && over > 0 && over <= m.spare {
		o.ResponseTokens -= over // as the server would, which keeps as many places free
	}
	longest := m.context
	if m.promptMax > 0 {
		o.PromptTokens, longest = min(o.PromptTokens, m.promptMax), m.promptMax+1
	}
	o.PrefillTokens = measure.PrefillLengths(longest)
	if m.updates {
		o.Versions = []loop.Version{1, 2}
	}
	if prompts != "" {
		var err error
		if o.Prompts, err = m.readPrompts(ctx, prompts); err != nil {
			return o, err
		}
	}
	if err := o.Validate(); err != nil {
		return o, failure.Usage("change --slots, --prompt-tokens or --response-tokens", "%s: %s", m.Name, strings.TrimPrefix(err.Error(), "calibrate: "))
	}
	return o, nil
}

// slotsOfURL is the default for a server of which nothing but its address is known.
const slotsOfURL = 16

// recogniseS bounds the question of what a server is.
const recogniseS = 30

// Open finds an engine and has it serve something.
func Open(ctx context.Context, r Request) (*Engine, error) {
	address, err := addressOf(r.Engine)
	if err != nil {
		return nil, err
	}
	name := r.Engine
	var m *Engine
	if address != "" {
		name = address
		m, err = r.openServer(ctx, config.Engine{Name: "engine", URL: address, ServedModel: r.Model, KeyFile: r.KeyFile, Slots: slotsOfURL}, nil)
	} else {
		m, err = r.openNamed(ctx)
	}
	if err != nil {
		return nil, err
	}
	m.Name, m.updates = name, len(r.Update) > 0
	return m, nil
}

// openNamed opens an engine of a document.
func (r Request) openNamed(ctx context.Context) (*Engine, error) {
	path, name, _ := strings.Cut(r.Engine, "#")
	document, err := config.Load(path)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range document.Engines {
		if e.Name != name && name != "" {
			names = append(names, e.Name)
			continue
		}
		if e.External() {
			if document.Tinker() {
				return nil, document.Refuse("engines.0.kind", "is a service, whose speed depends on its other clients: a run measures it", "the document of a run with other engines; headway diagnose RUN says how fast the service was")
			}
			how := document.Rollout.Sampling
			return r.openServer(ctx, e, &port.Sampling{Temperature: how.Temperature, TopP: how.TopP, TopK: how.TopK, MinP: how.MinP})
		}
		return r.openEmbedded(ctx, document, e)
	}
	return nil, failure.Usage("name one of them after the #", "%s has no engine %s: it has %s", path, name, strings.Join(names, ", "))
}

// addressOf is the address of a server that was named instead of a document, empty where a file was:
// HOST:PORT is one unless there is such a file.
func addressOf(text string) (string, error) {
	address := strings.TrimRight(text, "/")
	if !strings.Contains(address, "://") {
		host, port, err := net.SplitHostPort(address)
		if _, number := strconv.ParseUint(port, 10, 16); err != nil || host == "" || number != nil || strings.ContainsAny(host, "/#") {
			return "", nil
		}
		if _, err := os.Stat(text); err == nil {
			return "", nil
		}
		address = "http://" + address
	}
	if problem := config.CheckURL(address); problem != "" {
		shown := address
		if u, err := url.Parse(address); err != nil || u.User != nil {
			shown = "the address" // it may hold a password
		}
		return "", failure.Usage("give the server's own address, such as http://host:8000, without a path; its API key by --key-file", "%s %s", shown, problem)
	}
	return address, nil
}

// firstLine is the first line of a server's words, which may be a page.
func firstLine(err error) string {
	const most = 200
	text, _, more := strings.Cut(err.Error(), "\n")
	if runes := []rune(text); len(runes) > most {
		text, more = string(runes[:most]), true
	}
	if more {
		text += " …"
	}
	return text
}

// openServer asks a server what it is, where its kind is not known, and what it can.
func (r Request) openServer(ctx context.Context, e config.Engine, how *port.Sampling) (*Engine, error) {
	if r.Slots > 0 {
		e.Slots = r.Slots
	}
	server, err := parts.ServerOf(e)
	if err != nil {
		return nil, failure.Usage("give --key-file a file with the server's API key", "%w", err)
	}
	dialect, err := recognise(ctx, server, e)
	if err != nil {
		server.Close()
		return nil, err
	}
	o := upstream.Options{Name: e.Name, Slots: e.Slots, Server: server, Dialect: dialect, Sampling: how}
	if len(r.Update) > 0 {
		o.Views, o.Delivery = r.weightsOf, upstream.DeliveryDisk
		if e.Weights == string(upstream.DeliveryRestart) {
			o.Delivery = upstream.DeliveryRestart
		}
	}
	made, err := upstream.New(o)
	if err != nil {
		server.Close()
		return nil, err
	}
	m := &Engine{engine: made, server: made, Kind: dialect.Kind(), slots: e.Slots, sampling: how, close: made.Close}
	if err := m.serve(ctx); err != nil {
		return nil, errors.Join(failure.Run("headway doctor says what a server lacks, and the flag to start it with", "%s: %w", e.URL, err), made.Close())
	}
	caps, _ := made.Capabilities()
	m.Software, m.vocabulary = caps.Software, caps.Vocabulary
	if caps.Context > 0 {
		m.context, m.spare = caps.Context-caps.Spare, caps.Spare
	}
	if m.vocabulary == 0 {
		m.vocabulary = 256 // every model has those
	}
	return m, nil
}

// serve makes the engine serve version 0, which is what it serves now unless weights were given.
func (m *Engine) serve(ctx context.Context) error {
	if err := m.engine.Load(ctx, 0); err != nil {
		return err
	}
	return m.engine.Switch(ctx, 0, false)
}

// weightsOf is the directory of a version: the first that is given is served to begin with.
func (r Request) weightsOf(_ context.Context, version loop.Version) (string, error) {
	if len(r.Update) == 0 || version < 0 {
		return "", fmt.Errorf("there are no weights of version %d", version)
	}
	// The last version switched to, 2, is the last directory given.
	order := slices.Clone(r.Update)
	if len(order) == 2 {
		order = []string{r.Update[1], r.Update[0]}
	}
	return order[int(version)%len(order)], nil
}

// recognise returns how a server speaks: as its document says, else the first kind that it answers as.
func recognise(ctx context.Context, s *upstream.Server, e config.Engine) (upstream.Dialect, error) {
	quiet := func(string, ...any) {}
	if e.Kind != "" {
		return parts.DialectOf(e, quiet)
	}
	ctx, cancel := context.WithTimeout(ctx, recogniseS*time.Second)
	defer cancel()
	var said []string
	for _, kind := range []string{"vllm", "sglang", "llamacpp"} {
		dialect, err := parts.DialectOf(config.Engine{Kind: kind}, quiet)
		if err != nil {
			return nil, err
		}
		if _, err = dialect.Probe(ctx, s); err == nil {
			return dialect, nil
		}
		if unreachable(err) {
			return nil, failure.Run("start the server, or correct the address: it is that of the server itself, without a path", "nothing answers at %s: %w", e.URL, err)
		}
		if upstream.StatusOf(err) == 401 || upstream.StatusOf(err) == 403 {
			return nil, failure.Run("give --key-file a file with its API key", "%s asks who we are: %w", e.URL, err)
		}
		said = append(said, fmt.Sprintf("not %s: %s", kind, firstLine(err)))
	}
	return nil, failure.Run("give the address of a vLLM, an SGLang or a llama-server, not that of a gateway or a router",
		"%s answers, and is no engine that can be measured:\n  %s", e.URL, strings.Join(said, "\n  "))
}

// unreachable reports whether there is nobody at an address.
func unreachable(err error) bool {
	var lookup *net.DNSError
	var timeout net.Error
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.EHOSTUNREACH) || errors.As(err, &lookup) ||
		errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout()
}

// openEmbedded makes an embedded engine with the weights of its version 0, in a directory for the time.
func (r Request) openEmbedded(ctx context.Context, document config.Config, e config.Engine) (*Engine, error) {
	if len(r.Update) > 0 {
		return nil, failure.Usage("leave --update out", "an embedded engine takes no weights from a directory")
	}
	task, err := env.New(document.Environment.Task, env.Options{LettersMin: document.Environment.LettersMin, LettersMax: document.Environment.LettersMax})
	if err != nil {
		return nil, failure.Usage("", "%w", err)
	}
	dir, err := os.MkdirTemp("", "headway-calibrate-")
	if err != nil {
		return nil, err
	}
	remove := func() error { return os.RemoveAll(dir) }
	store, err := weights.Open(dir, weights.Options{})
	if err != nil {
		return nil, errors.Join(err, remove())
	}
	document.Environment.SupervisedSteps = 0 // speeds do not depend on what was learnt
	trainer, err := parts.NewTrainer(document, task, workload.Change{}, store)
	if err == nil {
		err = errors.Join(trainer.Initialize(ctx), trainer.Close())
	}
	if err != nil {
		return nil, errors.Join(err, remove())
	}
	if r.Slots > 0 {
		e.Slots = r.Slots
	}
	made, err := engine.New(engine.Options{Name: e.Name, Slots: e.Slots, Model: parts.PolicyShape(document, task), PromptTokens: task.Limits().PromptTokens,
		End: env.End, Seed: document.Seed, DecodeStepS: e.DecodeStepS, Weights: store})
	if err != nil {
		return nil, errors.Join(err, remove())
	}
	m := &Engine{engine: made, Kind: "embedded", slots: e.Slots, vocabulary: parts.PolicyShape(document, task).Vocabulary, context: document.Model.Context, promptMax: task.Limits().PromptTokens,
		close: func() error { return errors.Join(made.Close(), remove()) }}
	if err := m.serve(ctx); err != nil {
		return nil, errors.Join(err, m.close())
	}
	return m, nil
}

// promptLine is one line of a file of prompts.
type promptLine struct {
	Prompt   json.RawMessage `json:"prompt"`
	Messages json.RawMessage `json:"messages"`
}

// promptBytesMax bounds a line of prompts.
const promptBytesMax = 16 << 20

// readPrompts reads a file of prompts, which the engine's own tokenizer reads.
func (m *Engine) readPrompts(ctx context.Context, path string) ([][]int32, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, failure.Usage("give a file with a JSON object a line", "--prompts: %w", err)
	}
	defer f.Close()
	var prompts [][]int32
	lines := bufio.NewScanner(f)
	lines.Buffer(make([]byte, 0, 64<<10), promptBytesMax)
	for n := 1; lines.Scan(); n++ {
		text := strings.TrimSpace(lines.Text())
		if text == "" {
			continue
		}
		tokens, err := m.readPrompt(ctx, []byte(text))
		if err != nil {
			return nil, failure.Usage(`a line is {"prompt": "a text"}, {"prompt": [1, 2, 3]} or {"messages": [{"role": "user", "content": "a text"}]}`, "%s:%d: %w", path, n, err)
		}
		prompts = append(prompts, tokens)
	}
	if err := lines.Err(); err != nil {
		return nil, failure.Usage("", "%s: %w", path, err)
	}
	if len(prompts) == 0 {
		return nil, failure.Usage("give a file with a JSON object a line", "%s holds no prompts", path)
	}
	return prompts, nil
}

// readPrompt reads one line.
func (m *Engine) readPrompt(ctx context.Context, text []byte) ([]int32, error) {
	var line promptLine
	if err := json.Unmarshal(text, &line); err != nil {
		return nil, fmt.Errorf("not a JSON object: %w", err)
	}
	var tokens []int32
	if json.Unmarshal(line.Prompt, &tokens) == nil && len(tokens) > 0 {
		return tokens, nil
	}
	var words string
	if len(line.Messages) == 0 && (json.Unmarshal(line.Prompt, &words) != nil || words == "") {
		return nil, errors.New("it has neither prompt nor messages")
	}
	if m.server == nil {
		return nil, errors.New("an embedded engine reads token ids alone")
	}
	templates, err := upstream.NewTemplates(upstream.TemplatesOptions{Engines: []*upstream.Engine{m.server}})
	if err != nil {
		return nil, err
	}
	if len(line.Messages) > 0 {
		tokens, err = templates.Render(ctx, line.Messages, nil, true)
	} else {
		tokens, err = templates.Encode(ctx, words)
	}
	if err == nil && len(tokens) == 0 {
		err = errors.New("it comes to no tokens at all")
	}
	return tokens, err
}
