package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/internal/private"
	"github.com/headway-rl/headway/internal/reread"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/store/lock"
	"github.com/headway-rl/headway/store/transfer"
)

// receiveCmd runs beside a stage of an engine on another node: it brings versions there
// and has the stage switch.
type receiveCmd struct {
	URL       string  `arg:"" help:"URL of the control plane."`
	Engine    string  `required:"" help:"Name of the engine, as the run's document has it."`
	Stage     int     `help:"Pipeline stage of the engine, from 0."`
	Name      string  `help:"Name of this receiver (default: ENGINE-STAGE)."`
	Dir       string  `default:"received" help:"Where versions are kept; engines read them there."`
	Keep      int     `default:"2" help:"Versions kept beside the one that is served."`
	Listen    string  `placeholder:"ADDRESS" help:"Pass on what arrives to other receivers, at this address."`
	Address   string  `placeholder:"URL" help:"How other receivers reach --listen (default: its address)."`
	TLSCert   string  `name:"tls-cert" placeholder:"FILE" help:"Certificate (PEM, with its chain) of --listen; it is needed where that is not loopback."`
	TLSKey    string  `name:"tls-key" placeholder:"FILE" help:"Private key (PEM) of --tls-cert."`
	Form      string  `enum:",bf16,fp8-tensor,fp8-channel,fp8-block" default:"" help:"Have weights cast on their way: bf16, or fp8-tensor, fp8-channel or fp8-block (E4M3 with scales)."`
	Shared    string  `placeholder:"DIR" help:"Read versions in place: the control plane's directory of versions on a shared disk."`
	Objects   string  `placeholder:"RUN" help:"Take versions from the object store of a run, which serves with store.nats.objects; with --nats."`
	NATS      string  `name:"nats" placeholder:"URL" help:"The NATS cluster of --objects."`
	OnSwitch  string  `placeholder:"COMMAND" help:"Shell command that has the engine serve HEADWAY_WEIGHTS (a directory), version HEADWAY_VERSION."`
	RateLimit float64 `placeholder:"BYTES_PER_S" help:"Most that is received a second, and most that is passed on."`
	CA        string  `name:"ca" placeholder:"FILE" help:"Certificates (PEM) that those of the control plane and of other receivers are checked against, beside the system's."`
	TokenFile string  `placeholder:"FILE" help:"File with the token of the role engine."`
	Verify    bool    `hidden:"" help:"Flag of an earlier release: every file is compared with its hash."`
	Durable   bool    `help:"Have a version survive a loss of power before it counts as loaded."`
	Sync      bool    `hidden:"" help:"Earlier name of --durable."`
}

// Run receives until it is interrupted.
func (c *receiveCmd) Run(a *app.Process) error {
	switch {
	case c.Sync:
		return renamedFlag("receive --sync")
	case c.Verify:
		return renamedFlag("receive --verify")
	}
	if c.Stage < 0 || c.Keep < 1 || !(c.RateLimit >= 0) {
		return failure.Usage("", "--stage %d, --keep %d, --rate-limit %g: want a stage from 0, at least 1 version and no negative rate", c.Stage, c.Keep, c.RateLimit)
	}
	base, _, err := serverURL(c.URL)
	if err != nil {
		return err
	}
	token, err := c.token(a)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	handleInterrupts(ctx, func() { cancel(errReceiveInterrupted) })
	trust, err := c.trust()
	if err != nil {
		return err
	}
	client := transfer.NewClient(trust, c.from())
	delivery, done, err := c.delivery(ctx, a, client, token)
	if err != nil {
		return err
	}
	defer done()
	agent := &transfer.Agent{
		Control: strings.TrimSuffix(base.String(), "/"), Token: token, Name: c.Name, Engine: c.Engine, Stage: c.Stage, Form: c.Form, Delivery: delivery, Client: client,
		Logf: logTo(a),
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
		store, overTCP := delivery.(*transfer.Store)
		if !overTCP {
			return failure.Usage("leave it out: there is nothing to pass on", "--listen has no effect with --shared and --objects")
		}
		stop, err := c.passOn(a, store, agent, trust)
		if err != nil {
			return err
		}
		defer stop()
	}
	if err := agent.Run(ctx); err != nil && !errors.Is(err, errReceiveInterrupted) {
		return failure.Run("", "%w", err)
	}
	return nil
}

// token reads the token file, again when it changes.
func (c *receiveCmd) token(a *app.Process) (func() string, error) {
	if c.TokenFile == "" {
		return nil, nil
	}
	read := func() (string, error) { return readToken(c.TokenFile, "engine") } // never admin's: a receiver needs no more
	file, err := reread.New("--token-file "+c.TokenFile, read, logTo(a), c.TokenFile)
	if err != nil {
		return nil, err
	}
	return file.Get, nil
}

// trust is TLS with the system's certificates and those of --ca.
func (c *receiveCmd) trust() (*tls.Config, error) {
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if c.CA == "" {
		return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, nil
	}
	return trusting(c.CA, pool)
}

// delivery is how versions come here, and what ends it.
func (c *receiveCmd) delivery(ctx context.Context, a *app.Process, client *http.Client, token func() string) (transfer.Delivery, func(), error) {
	nothing := func() {}
	switch {
	case c.Shared != "" && c.Objects != "":
		return nil, nothing, failure.Usage("choose one road", "--shared and --objects stand together")
	case (c.Objects == "") != (c.NATS == ""):
		return nil, nothing, failure.Usage("give both, or neither", "--objects and --nats belong together")
	case (c.Shared != "" || c.Objects != "") && c.Form != "":
		return nil, nothing, failure.Usage("leave --form out, or fetch over TCP", "--form casts on the way from the control plane; --shared and --objects take versions as they were published")
	case c.Shared != "":
		if _, err := os.Stat(c.Shared); err != nil {
			return nil, nothing, failure.Usage("mount it first", "--shared: %w", err)
		}
		return transfer.Shared{Dir: c.Shared, Patience: sharedPatience}, nothing, nil
	}
	if err := private.Make(c.Dir); err != nil {
		return nil, nothing, failure.Usage("choose another --dir", "--dir %s: %w", c.Dir, err)
	}
	held, err := lock.Take(filepath.Join(c.Dir, "lock"), c.Dir)
	if err != nil {
		return nil, nothing, failure.Usage("give every receiver a --dir of its own", "%w", err)
	}
	if c.Objects != "" {
		delivery, done, err := c.objectDelivery(ctx, a)
		return delivery, func() { done(); held.Release() }, err
	}
	return &transfer.Store{Dir: c.Dir, Keep: c.Keep, Token: token, Form: c.Form, Client: client, Always: c.Durable, Limit: transfer.NewBucket(c.RateLimit)}, held.Release, nil
}

// sharedPatience is how much later than its publish a version may show up on a shared disk.
const sharedPatience = 30 * time.Second

var errReceiveInterrupted = errors.New("the receiver was interrupted")

// onSwitchWait is how long the output is waited for of what a command has left behind.
const onSwitchWait = 2 * time.Second

// onSwitch runs the operator's command with the version in its environment.
func (c *receiveCmd) onSwitch(ctx context.Context, a *app.Process, version loop.Version, dir string) error {
	command := exec.CommandContext(ctx, "sh", "-c", c.OnSwitch)
	command.Env = append(os.Environ(), fmt.Sprintf("HEADWAY_VERSION=%d", version), "HEADWAY_WEIGHTS="+dir)
	command.WaitDelay = onSwitchWait
	out, err := command.CombinedOutput()
	if err != nil && !errors.Is(err, exec.ErrWaitDelay) { // what it has left behind may keep its output open
		return fmt.Errorf("--on-switch: %w: %s", err, strings.TrimSpace(string(out)))
	}
	if len(out) > 0 {
		fmt.Fprintf(a.Stderr, "%s", out)
	}
	return nil
}
