package main

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/app/origin"
	"github.com/headway-rl/headway/app/plane"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/internal/pause"
	"github.com/headway-rl/headway/internal/printable"
	"github.com/headway-rl/headway/observe/report"
)

// statusCmd shows the state of a control plane.
type statusCmd struct {
	judgement
	Server    string  `arg:"" optional:"" name:"url" default:"http://127.0.0.1:7070" help:"Address of the control plane, or the run directory of one on this machine."`
	TokenFile string  `placeholder:"FILE" help:"A file with the token alone, or the server's token file (default: the variable HEADWAY_TOKEN)."`
	CA        string  `name:"ca" placeholder:"FILE" help:"Certificate (PEM) that signed the server's, where the system does not know it."`
	Watch     bool    `short:"w" help:"Show it again and again, until Ctrl-C."`
	Every     float64 `default:"2" placeholder:"SECONDS" help:"Time between two looks with --watch."`
	// command is its name in advice.
	command string
}

// statusBytesMax bounds a status: a server that sends more is not a control plane.
const statusBytesMax = 16 << 20

// Run asks once, or until it is interrupted.
func (c *statusCmd) Run(a *app.Process) error {
	c.command = "status"
	return c.follow(a)
}

// follow looks as Run does, for whichever command.
func (c *statusCmd) follow(a *app.Process) error {
	if err := c.check(); err != nil {
		return err
	}
	client, err := newStatusClient(a, c)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return c.look(ctx, a, client)
}

// check refuses what makes no sense.
func (c *statusCmd) check() error {
	if !(c.Every >= 0.1 && c.Every <= 3600) {
		return failure.Usage("it is in seconds", "--every %g is not between 0.1 and 3600", c.Every)
	}
	return nil
}

// look shows the status, under --watch until the context ends.
func (c *statusCmd) look(ctx context.Context, a *app.Process, client *statusClient) error {
	view := newStatusView(a, c.Full)
	for first := true; ; first = false {
		status, text, err := client.get(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && (first || !c.Watch):
			return err
		case err != nil:
			failure.Print(a.Stderr, err) // it may come back
		case c.JSON && c.Watch:
			err = writeLine(a.Stdout, text)
		case c.JSON:
			err = printJSON(a.Stdout, json.RawMessage(text))
		default:
			err = view.show(status, c.Watch)
		}
		if !c.Watch || err != nil && errors.Is(err, syscall.EPIPE) {
			return err
		}
		if pause.For(ctx, time.Duration(c.Every*float64(time.Second))) != nil {
			return nil
		}
	}
}

func writeLine(w io.Writer, text []byte) error {
	_, err := fmt.Fprintf(w, "%s\n", strings.TrimSpace(string(text)))
	return err
}

// statusClient asks one control plane.
type statusClient struct {
	http  *http.Client
	base  *url.URL
	token string
	// dir is the run directory that was named, empty for an address; run is what it says that the run is called.
	dir, run string
	// command is the command that looks.
	command string
}

// statusRoles are the roles whose token a look may be taken with, the one that may least first.
var statusRoles = []string{"viewer", "engine", "environment", "trainer", "admin"}

func newStatusClient(a *app.Process, c *statusCmd) (*statusClient, error) {
	base, run, err := serverURL(c.Server)
	if err != nil {
		return nil, err
	}
	token := a.Getenv("HEADWAY_TOKEN")
	if c.TokenFile != "" {
		if token, err = readToken(c.TokenFile, statusRoles...); err != nil {
			return nil, err
		}
	}
	if token != "" && base.Scheme == "http" && !ownMachine(base.Hostname()) {
		fmt.Fprintf(a.Stderr, "headway: the token goes to %s unencrypted; serve with TLS and use https\n", base.Host)
	}
	transport := &http.Transport{TLSHandshakeTimeout: 10 * time.Second, Proxy: http.ProxyFromEnvironment}
	if c.CA != "" {
		if transport.TLSClientConfig, err = trusting(c.CA, x509.NewCertPool()); err != nil {
			return nil, err
		}
	}
	dir := ""
	if run != "" {
		dir = c.Server
	}
	return &statusClient{base: base, token: token, dir: dir, run: run, command: c.command, http: &http.Client{Transport: transport, Timeout: 15 * time.Second,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}, nil
}

// serverURL reads an address: a URL, HOST:PORT, or a run directory whose control plane said its own and the run's name.
func serverURL(given string) (base *url.URL, run string, err error) {
	hint := "want http://HOST:PORT, https://HOST:PORT, or the run directory of a control plane on this machine"
	if text, err := os.ReadFile(filepath.Join(given, origin.AddressFile)); err == nil {
		var said origin.Address
		if json.Unmarshal(text, &said) != nil || said.URL == "" {
			return nil, "", failure.Usage(hint, "%s does not say where the control plane listens", filepath.Join(given, origin.AddressFile))
		}
		given, run = said.URL, said.Run
	} else if info, err := os.Stat(given); err == nil && info.IsDir() {
		if made, _ := origin.Of(given); made == origin.Run {
			return nil, "", failure.Usage("headway view "+printable.Word(given)+" shows it in a browser, while it goes on too; headway diagnose judges it", "%s is a run of headway run, which has no control plane", given)
		}
		return nil, "", failure.Usage(hint, "%s has no %s: no control plane was started there", given, origin.AddressFile)
	}
	if !strings.Contains(given, "://") {
		if err := refuseMissingPath(given); err != nil {
			return nil, "", err
		}
		given = "http://" + given
	}
	base, err = url.Parse(given)
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" || base.User != nil || base.RawQuery != "" {
		return nil, "", failure.Usage(hint, "%q is not the address of a control plane", given)
	}
	return base, run, nil
}

// refuseMissingPath refuses what can only be meant as a run directory, and is none: a path with folders
// before its last part, or from where this process is. A host with a port may have a path behind it.
func refuseMissingPath(given string) error {
	folder, _, nested := strings.Cut(filepath.ToSlash(given), "/")
	_, port, err := net.SplitHostPort(folder)
	if !nested || err == nil && port != "" {
		return nil
	}
	if info, err := os.Stat(given); err == nil && !info.IsDir() {
		return failure.Usage("name the run directory of a control plane, or its address: http://HOST:PORT", "%s is a file, no run directory", given)
	}
	return failure.Usage("runs are in another folder where --dir or store.dir names one; an address is http://HOST:PORT", "the run directory %s does not exist", given)
}

func ownMachine(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && (ip.IsLoopback() || ip.IsUnspecified())
}

// get asks for the status.
func (c *statusClient) get(ctx context.Context) (protocol.Status, []byte, error) {
	var status protocol.Status
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base.JoinPath("/api/v1/status").String(), nil)
	if err != nil {
		return status, nil, err
	}
	if c.token != "" {
		request.Header.Set("Authorization", "Bearer "+c.token)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return status, nil, c.unreachable(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, statusBytesMax))
	if err != nil {
		return status, nil, c.unreachable(err)
	}
	if response.StatusCode == http.StatusNotFound {
		if err := c.refuseDashboard(ctx); err != nil {
			return status, nil, err
		}
	}
	if response.StatusCode != http.StatusOK {
		return status, nil, c.refused(response.StatusCode, text)
	}
	if err := json.Unmarshal(text, &status); err != nil || status.State == "" {
		return status, nil, c.stranger()
	}
	if c.run != "" && status.Run != c.run {
		if err := c.hasFinished(); err != nil {
			return status, nil, err
		}
		return status, nil, failure.Run(plane.FinishedHint(c.dir), "run %s does not go on: run %s answers at %s now, where its control plane listened", c.run, report.Plain(status.Run), c.base)
	}
	return status, text, nil
}

// unreachable says why nothing was heard, and what to do.
func (c *statusClient) unreachable(err error) error {
	var refused *net.OpError
	var name *net.DNSError
	var timeout net.Error
	switch {
	case errors.Is(err, syscall.ECONNREFUSED) && c.run != "":
		if err := c.hasFinished(); err != nil {
			return err
		}
		return failure.Run(plane.FinishedHint(c.dir)+"; headway serve with its document goes on with it", "run %s does not go on: nothing listens at %s: %w", c.run, c.base, syscall.ECONNREFUSED)
	case errors.Is(err, syscall.ECONNREFUSED):
		return failure.Run("start one with headway serve, or name its address: headway "+c.command+" http://HOST:PORT", "nothing listens at %s: %w", c.base, syscall.ECONNREFUSED)
	case errors.As(err, &name):
		return failure.Run("look at the name's spelling", "%s: %w", c.base, name)
	case strings.Contains(err.Error(), "malformed HTTP response"):
		return failure.Run("a server with TLS answers to https://", "%s does not answer in HTTP", c.base)
	case strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		return failure.Run("a server without TLS answers to http://", "%s does not speak TLS", c.base)
	case strings.Contains(err.Error(), "x509:") || strings.Contains(err.Error(), "tls:"):
		return failure.Run("name the certificate that signed it: --ca FILE", "%s has a certificate that is not trusted: %w", c.base, err)
	case errors.As(err, &timeout) && timeout.Timeout():
		return failure.Run("look at its load and at the network between", "%s does not answer in time", c.base)
	case errors.As(err, &refused):
		return failure.Run("look at the network between", "%s cannot be reached: %w", c.base, refused)
	}
	return failure.Run("look at its log", "%s broke the connection off: %w", c.base, err)
}

// hasFinished says that the run of the directory has made all its train steps, where it has. It is asked only
// when nobody answers for the run, and reads the directory anew: the run may end while it is watched.
func (c *statusClient) hasFinished() error {
	version, ok := origin.FinishedAt(c.dir)
	if !ok {
		return nil
	}
	return failure.Run(plane.FinishedHint(c.dir), "run %s has finished at version %d", report.Plain(c.run), version)
}

// refused says what an answer other than 200 means.
func (c *statusClient) refused(code int, text []byte) error {
	var body protocol.ErrorBody
	known := json.Unmarshal(text, &body) == nil && body.Error.Code != ""
	if !known {
		if code == http.StatusBadRequest && strings.Contains(string(text), "HTTPS server") {
			return failure.Run("it answers to https://", "%s serves TLS", c.base)
		}
		return c.stranger()
	}
	message := report.Plain(body.Error.Message)
	switch body.Error.Code {
	case protocol.CodeUnauthorized:
		if c.token == "" {
			return failure.Run("name one with --token-file FILE, or in the variable HEADWAY_TOKEN", "%s asks for a token", c.base)
		}
		return failure.Run("take one of the server's token file; a change of the file counts within 5 s", "%s does not know the token", c.base)
	case protocol.CodeUnavailable:
		return failure.Run("try again", "%s: %s", c.base, message)
	}
	return failure.Run("look at the server's log", "%s: %s", c.base, message)
}

// viewInfoPath is where a run that is shown in a browser says which it is.
const viewInfoPath = "/api/v1/view/info"

// isDashboard reports whether pages of a run answer, which ask for the token of their link.
func (c *statusClient) isDashboard(ctx context.Context) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base.JoinPath(viewInfoPath).String(), nil)
	if err != nil {
		return false
	}
	response, err := c.http.Do(request)
	if err != nil {
		return false
	}
	defer response.Body.Close()
	var body protocol.ErrorBody
	err = json.NewDecoder(io.LimitReader(response.Body, statusBytesMax)).Decode(&body)
	return err == nil && response.StatusCode == http.StatusUnauthorized && body.Error.Code == protocol.CodeUnauthorized
}

// refuseDashboard refuses the pages of a run that has no control plane, nil where there are none.
func (c *statusClient) refuseDashboard(ctx context.Context) error {
	if !c.isDashboard(ctx) {
		return nil
	}
	return failure.Run("open the link that it printed, or headway view or diagnose the run's directory; status and top are of a control plane: headway serve",
		"%s is the dashboard of headway run or headway view", c.base)
}

func (c *statusClient) stranger() error {
	return failure.Run("name the address of headway serve", "what answers at %s is not a control plane of headway", c.base)
}
