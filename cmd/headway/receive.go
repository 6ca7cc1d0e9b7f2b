package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/transfer"
)

// receiveCmd runs beside a stage of an engine on another node: it brings versions there
// and has the stage switch.
type receiveCmd struct {
	URL       string  `arg:"" help:"URL of the control plane."`
	Engine    string  `required:"" help:"Name of the engine, as the run's document has it."`
	Stage     int     `help:"Pipeline stage of the engine, from 0."`
	Name      string  `help:"Name of this receiver (default: ENGINE-STAGE)."`
	Dir       string  `default:"received" help:"Where versions are kept; engines read them there."`
	Keep      int     `default:"2" help:"Versions kept."`
	Listen    string  `placeholder:"ADDRESS" help:"Pass on what arrives to other receivers, at this address."`
	Address   string  `placeholder:"URL" help:"How other receivers reach --listen (default: its address)."`
	OnSwitch  string  `placeholder:"COMMAND" help:"Shell command that has the engine serve HEADWAY_WEIGHTS (a directory), version HEADWAY_VERSION."`
	RateLimit float64 `placeholder:"BYTES_PER_S" help:"Most that is received a second, and most that is passed on."`
	TokenFile string  `placeholder:"FILE" help:"File with the token of the role engine."`
	Sync      bool    `help:"Have a version survive a loss of power before it counts as loaded."`
}

// Run receives until it is interrupted.
func (c *receiveCmd) Run(a *app) error {
	if c.Stage < 0 || c.Keep < 1 || c.RateLimit < 0 {
		return usageError("", "--stage %d, --keep %d, --rate-limit %g: want a stage from 0, at least 1 version and no negative rate", c.Stage, c.Keep, c.RateLimit)
	}
	token, err := c.token()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return usageError("choose another --dir", "--dir %s: %w", c.Dir, err)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	handleInterrupts(ctx, func() { cancel(errReceiveInterrupted) })
	store := &transfer.Store{Dir: c.Dir, Keep: c.Keep, Token: token, Always: c.Sync, Limit: transfer.NewBucket(c.RateLimit)}
	agent := &transfer.Agent{
		Control: strings.TrimSuffix(c.URL, "/"), Token: token, Name: c.Name, Engine: c.Engine, Stage: c.Stage, Store: store,
		Logf: func(format string, args ...any) { fmt.Fprintf(a.Stderr, format+"\n", args...) },
	}
	if agent.Name == "" {
		agent.Name = fmt.Sprintf("%s-%d", c.Engine, c.Stage)
	}
	if c.OnSwitch != "" {
		agent.OnSwitch = func(ctx context.Context, version loop.Version, dir string) error {
			return c.onSwitch(ctx, a, version, dir)
		}
	}
	if c.Listen != "" {
		stop, err := c.passOn(a, store, agent)
		if err != nil {
			return err
		}
		defer stop()
	}
	if err := agent.Run(ctx); err != nil && !errors.Is(err, errReceiveInterrupted) {
		return runError("", "%w", err)
	}
	return nil
}

var errReceiveInterrupted = errors.New("the receiver was interrupted")

// transferPrefix is where versions are fetched from, of control planes and receivers.
const transferPrefix = "/api/v1/transfer"

// passOn serves what arrives to other receivers.
func (c *receiveCmd) passOn(a *app, store *transfer.Store, agent *transfer.Agent) (stop func(), err error) {
	listener, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return nil, usageError("choose another port", "--listen %s: %w", c.Listen, err)
	}
	store.Source = &transfer.Source{Limit: transfer.NewBucket(c.RateLimit), Token: store.Token}
	agent.Address = c.Address
	if agent.Address == "" {
		agent.Address = "http://" + listener.Addr().String()
	}
	agent.Address = strings.TrimSuffix(agent.Address, "/") + transferPrefix
	server := &http.Server{Handler: store.Source.Handler(transferPrefix), ReadHeaderTimeout: 10 * time.Second, MaxHeaderBytes: 16 << 10}
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			fmt.Fprintf(a.Stderr, "passing on: %v\n", err)
		}
	}()
	return func() { server.Close() }, nil
}

// onSwitch runs the operator's command with the version in its environment.
func (c *receiveCmd) onSwitch(ctx context.Context, a *app, version loop.Version, dir string) error {
	command := exec.CommandContext(ctx, "sh", "-c", c.OnSwitch)
	command.Env = append(os.Environ(), fmt.Sprintf("HEADWAY_VERSION=%d", version), "HEADWAY_WEIGHTS="+dir)
	out, err := command.CombinedOutput()
	if err != nil {
		return fmt.Errorf("--on-switch: %w: %s", err, strings.TrimSpace(string(out)))
	}
	if len(out) > 0 {
		fmt.Fprintf(a.Stderr, "%s", out)
	}
	return nil
}

// token reads the token of the role engine.
func (c *receiveCmd) token() (string, error) {
	if c.TokenFile == "" {
		return "", nil
	}
	text, err := os.ReadFile(c.TokenFile)
	if err != nil {
		return "", usageError("", "--token-file: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) == 1 {
			return fields[0], nil
		} else if len(fields) == 2 && (fields[0] == "engine" || fields[0] == "admin") {
			return fields[1], nil
		}
	}
	return "", usageError("a line 'engine TOKEN', or the token alone", "--token-file %s has no token of the role engine", c.TokenFile)
}
