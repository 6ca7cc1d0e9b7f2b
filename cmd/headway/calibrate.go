package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/app/calibrate"
	"github.com/headway-rl/headway/app/command"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/internal/printable"
	measure "github.com/headway-rl/headway/predict/calibrate"
)

// calibrateCmd measures an engine and writes what simulate, predict and plan read.
type calibrateCmd struct {
	command.Output
	progressOptions
	Engine string `arg:"" optional:"" help:"URL of a server (vLLM, SGLang or llama-server), or FILE#NAME of an engine of a document; FILE alone is its first. Without it, --metrics or --run says what is read."`

	Metrics []string      `placeholder:"SOURCE" help:"Measure nothing; read the /metrics pages of running vLLM or SGLang servers. It is a URL, or a file of pages with a line of the time before each. Repeatable."`
	For     time.Duration `default:"2m" help:"With --metrics of a URL: read for so long."`
	Every   time.Duration `default:"5s" help:"With --metrics of a URL: between two pages."`
	Keep    string        `placeholder:"FILE" help:"With --metrics of a URL: keep the pages in FILE, for --metrics FILE."`
	Log     string        `name:"run" placeholder:"PATH" help:"Read a run: a run directory or trace, or another framework's log (W&B, TensorBoard, JSON lines, console). Beside --metrics, each gives what it knows best."`
	From    string        `placeholder:"NAME" help:"With --run: the framework that wrote the log (default: found by its keys)."`
	LogName string        `name:"run-name" placeholder:"NAME" help:"With --run: the run, where a log holds several."`

	Slots          int      `placeholder:"N" help:"Responses at once to measure up to: 1, 2, 4 and so on (default: the document's, 16 for a URL)."`
	PromptTokens   int      `default:"128" help:"Length of the prompts that decoding is measured with."`
	ResponseTokens int      `default:"128" help:"Length of their responses."`
	Seconds        float64  `default:"12" help:"Time for each number of slots."`
	Repeats        int      `default:"6" help:"Rounds of each number of slots; 6 make an interval of 95 %."`
	Prompts        string   `placeholder:"FILE" help:"Also measure the lengths of responses to these prompts: a JSON object a line, with prompt (a text or token ids) or messages."`
	Samples        int      `default:"4" help:"Responses to each of --prompts."`
	MaxTokens      int      `default:"1024" help:"Longest response to --prompts."`
	Update         []string `placeholder:"DIR" help:"Also time switches to the weights in this directory, as the server sees it; the last one given stays. Give it twice for two models."`
	Out            string   `placeholder:"FILE" help:"Write the figures as a document."`
	Plot           string   `placeholder:"FILE" help:"Write tokens/s by slots as an SVG picture."`
	Model          string   `placeholder:"NAME" help:"Name by which the server knows the model (default: the first it lists)."`
	KeyFile        string   `placeholder:"FILE" help:"File with the server's API key."`
	Seed           uint64   `default:"1" help:"Seed of the random prompts."`
}

// calibrationReport is what --json prints.
type calibrationReport struct {
	Engine   string `json:"engine"`
	Kind     string `json:"kind"`
	Software string `json:"software,omitempty"`
	measure.Result
}

// Run measures and prints.
func (c *calibrateCmd) Run(application *app.Process) error {
	if err := c.check(); err != nil {
		return err
	}
	ctx, stop := command.Interruptible()
	defer stop()
	if c.Engine == "" {
		return c.find(ctx, application)
	}
	measured, err := calibrate.Open(ctx, calibrate.Request{Engine: c.Engine, Model: c.Model, KeyFile: c.KeyFile, Slots: c.Slots, Update: c.Update})
	if err != nil {
		return err
	}
	o, err := measured.Options(ctx, c.asked(), c.Prompts)
	if err != nil {
		return errors.Join(err, measured.Close())
	}
	bar := newCalibrationBar(application, c.Plain)
	o.Progress = bar.show
	result, err := measure.Measure(ctx, o)
	bar.end()
	if closed := measured.Close(); err == nil && closed != nil {
		err = closed
	}
	if ctx.Err() != nil {
		return failure.Run("", "interrupted: nothing was written")
	}
	if err != nil {
		err = failure.Run("headway doctor says what a server lacks; measure fewer slots, or look at the server's log", "%s: %w", measured.Name, err)
	}
	if len(result.Decode) == 0 {
		return err
	}
	return errors.Join(err, c.tell(application, measured, result))
}

// tell writes and prints what was measured, of which some may be missing.
func (c *calibrateCmd) tell(application *app.Process, measured *calibrate.Engine, result measure.Result) error {
	if err := c.write(measured, result); err != nil {
		return err
	}
	if c.JSON {
		return printJSON(application.Stdout, calibrationReport{measured.Name, measured.Kind, measured.Software, result})
	}
	return c.print(application, measured, result)
}

// check refuses what no engine could be asked.
func (c *calibrateCmd) check() error {
	reads := len(c.Metrics) > 0 || c.Log != ""
	switch {
	case c.Engine == "" && !reads:
		return failure.Usage("headway calibrate URL measures an engine, --metrics reads running servers' pages, --run a run's log", "there is nothing to calibrate from")
	case c.Engine != "" && reads:
		return failure.Usage("leave one of them out, or calibrate twice", "%s is measured, and --metrics and --run read what is there", c.Engine)
	case c.For < 0 || c.For > 24*time.Hour || c.Every < 10*time.Millisecond || c.Every > time.Hour:
		return failure.Usage("", "--for, --every: want up to 24h, and 10ms to 1h")
	case c.Plot != "" && reads:
		return failure.Usage("headway calibrate URL draws what it measures", "--plot draws a measurement, and --metrics and --run measure nothing")
	}
	for _, n := range []struct {
		flag string
		ok   bool
		want string
	}{
		{"--slots", c.Slots >= 0, "at least 1"}, {"--prompt-tokens", c.PromptTokens >= 1, "at least 1"}, {"--response-tokens", c.ResponseTokens >= 2, "at least 2"},
		{"--seconds", c.Seconds > 0 && c.Seconds <= 3600, "above 0 and up to 3600"}, {"--repeats", c.Repeats >= 1 && c.Repeats <= 1000, "1 to 1000"},
		{"--samples", c.Samples >= 1, "at least 1"}, {"--max-tokens", c.MaxTokens >= 1, "at least 1"},
	} {
		if !n.ok {
			return failure.Usage("", "%s: want %s", n.flag, n.want)
		}
	}
	for flag, path := range map[string]string{"--out": c.Out, "--plot": c.Plot, "--keep": c.Keep} {
		if path == "" {
			continue
		}
		if at, err := os.Stat(filepath.Dir(path)); err != nil || !at.IsDir() {
			return failure.Usage("make the directory first", "%s %s: there is no directory %s", flag, path, filepath.Dir(path))
		}
		if _, err := os.Lstat(path); err == nil {
			return failure.Usage("name a file that does not exist yet", "%s %s: the file exists, and nothing is overwritten", flag, path)
		}
	}
	return nil
}

// asked are the options of a measurement as the flags have them.
func (c *calibrateCmd) asked() measure.Options {
	return measure.Options{PromptTokens: c.PromptTokens, ResponseTokens: c.ResponseTokens, Point: time.Duration(c.Seconds * float64(time.Second)), Repeats: c.Repeats,
		Samples: c.Samples, LengthMax: c.MaxTokens, Seed: c.Seed}
}

// write writes the files that were asked for.
func (c *calibrateCmd) write(m *calibrate.Engine, r measure.Result) error {
	files := map[string][]byte{}
	if c.Out != "" {
		files[c.Out] = r.Document(fmt.Sprintf("%s, %s", m.Name, m.Words()))
	}
	if c.Plot != "" {
		picture, err := r.Picture().SVG()
		if err != nil {
			return err
		}
		files[c.Plot] = []byte(picture)
	}
	for path, content := range files {
		if err := os.WriteFile(path, content, 0o644); err != nil {
			return failure.Run("", "%w", err)
		}
	}
	return nil
}

// print prints for people.
func (c *calibrateCmd) print(application *app.Process, m *calibrate.Engine, r measure.Result) error {
	parts := []string{fmt.Sprintf("%s, %s: prompts of %d tokens, responses of %d\n", m.Name, m.Words(), r.PromptTokens, r.ResponseTokens), r.Table().String()}
	if t := r.PrefillTable(); len(t.Rows) > 0 {
		parts = append(parts, t.String())
	}
	parts = append(parts, strings.Join(r.Sentences(), "\n")+"\n")
	if len(r.Notes) > 0 {
		parts = append(parts, "! "+strings.Join(r.Notes, "\n! ")+"\n")
	}
	if c.Out != "" {
		parts = append(parts, fmt.Sprintf("Written to %s. It says nothing of your trainer:\n  headway simulate %s --set modelled.train.utilization=null --set modelled.train.step_s=SECONDS\n  headway plan PLAN.yaml --measured %s\n", c.Out, printable.Word(c.Out), printable.Word(c.Out)))
	}
	_, err := fmt.Fprint(application.Stdout, strings.Join(parts, "\n"))
	return err
}

// calibrationBar shows how far a calibration is.
type calibrationBar struct {
	app      *app.Process
	terminal bool
	last     int // tenths that were printed
}

func newCalibrationBar(application *app.Process, plain bool) *calibrationBar {
	return &calibrationBar{app: application, terminal: !plain && application.Getenv("TERM") != "dumb" && application.IsTerminal(application.Stderr), last: -1}
}

// barWidth is the bar's, in characters.
const barWidth = 24

// show draws the bar, on a terminal; elsewhere it prints a line for every tenth.
func (b *calibrationBar) show(done, all int, next string) {
	if b.terminal {
		full := barWidth * done / max(all, 1)
		fmt.Fprintf(b.app.Stderr, "\r%s%s %3d %%  %s\x1b[K", strings.Repeat("█", full), strings.Repeat("░", barWidth-full), 100*done/max(all, 1), next)
		return
	}
	if tenth := 10 * done / max(all, 1); tenth > b.last && next != "" {
		b.last = tenth
		fmt.Fprintf(b.app.Stderr, "%d %%: %s\n", 10*tenth, next)
	}
}

// end clears a terminal's line.
func (b *calibrationBar) end() {
	if b.terminal {
		fmt.Fprint(b.app.Stderr, "\r\x1b[K")
	}
}
