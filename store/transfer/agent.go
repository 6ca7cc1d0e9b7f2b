package transfer

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/internal/pause"
	"github.com/headway-rl/headway/loop"
)

// Agent is the receiver's side: it asks a control plane what to do, has versions
// brought here over its Delivery, and switches.
type Agent struct {
	// Control is the control plane's URL.
	Control string
	// Token returns what is sent there as the bearer, "" for nothing; nil returns that.
	Token func() string
	// Name, Engine and Stage say who it is; Address is the URL of its Store's Source, empty for none, and
	// Secret that Source's.
	// Form is the type that its engine wants weights in, such as bf16; empty as they were published.
	Name, Engine string
	Stage        int
	Address      string
	Secret       string
	Form         string
	Delivery     Delivery
	// OnSwitch is called when the version in dir is to be served; an error quarantines the stage. Nil does nothing.
	OnSwitch func(ctx context.Context, version loop.Version, dir string) error
	// Client of the requests; nil means one of NewClient without certificates of its own.
	Client *http.Client
	// Logf is told of the agent's actions, by several goroutines, but one at a time; nil tells no one.
	Logf func(format string, args ...any)

	logging        sync.Mutex // held while Logf is called
	instance       string
	served, loaded loop.Version
}

// agentWaitS is how long one request waits for a command.
const agentWaitS = 15

// agentSlackS is how much longer the answer may take before the request is given up.
const agentSlackS = 15

// retry bounds the pause between two tries to reach the control plane.
const retryFirst, retryLast = 100 * time.Millisecond, 5 * time.Second

// placeWait is how long another process may seem to have this one's place. A node that has lost its power leaves a request open
// at the control plane, until its wait ends.
const placeWait = (agentWaitS + agentSlackS) * time.Second

// Run does what it is told until the context ends. A control plane that cannot be
// reached, because it is being restarted, is tried again for as long as it takes.
func (a *Agent) Run(ctx context.Context) error {
	if err := a.Delivery.Clean(); err != nil {
		a.logf("removing what earlier processes left: %v", err)
	}
	a.instance, a.served, a.loaded = rand.Text(), loop.NoVersion, loop.NoVersion
	report, again := protocol.ReceiverRequest{}, retryFirst
	began, placed := time.Now(), false
	for ctx.Err() == nil {
		a.sign(&report)
		report.Served, report.Loaded, report.WaitS = a.served, a.loaded, agentWaitS
		command, err := a.ask(ctx, report)
		if err != nil {
			if final(err, !placed && time.Since(began) < placeWait) {
				return fmt.Errorf("transfer: receiver %s: %w", a.Name, err)
			}
			a.logf("asking %s: %v; again in %s", a.Control, err, again)
			if pause.For(ctx, again) != nil {
				break
			}
			again = min(2*again, retryLast)
			continue
		}
		again, report, placed = retryFirst, protocol.ReceiverRequest{}, true
		if command.Seq != 0 {
			busy, done := context.WithCancel(ctx)
			var beating sync.WaitGroup
			beating.Go(func() { a.heartbeat(busy) })
			report = a.execute(ctx, command)
			done()
			beating.Wait() // no word of it may come after the report, or after the leave
		}
	}
	a.takeLeave(context.WithoutCancel(ctx))
	return context.Cause(ctx)
}

// final reports whether a refusal stands, however often it is asked for. A receiver that comes waits until its place is free.
func final(err error, comes bool) bool {
	refusal, refused := err.(*protocol.Refusal)
	if !refused {
		return false
	}
	switch refusal.Code {
	case protocol.CodeUnavailable, protocol.CodeBusy:
		return false
	case protocol.CodeConflict:
		return !comes
	}
	return true
}

// sign says in a report who sends it.
func (a *Agent) sign(report *protocol.ReceiverRequest) {
	report.Engine, report.Stage, report.Address, report.Secret, report.Form = a.Engine, a.Stage, a.Address, a.Secret, a.Form
	report.Instance = a.instance
}

// takeLeave has the control plane forget this receiver, if it can be reached at once.
func (a *Agent) takeLeave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	word := protocol.ReceiverRequest{Instance: a.instance, Engine: a.Engine, Stage: a.Stage, Served: loop.NoVersion, Loaded: loop.NoVersion, Leaving: true}
	if _, err := a.ask(ctx, word); err != nil {
		a.logf("taking leave of %s: %v", a.Control, err)
	}
}

// load is what a command says to fetch. A path is one at the control plane, the only parent that gets
// this receiver's token.
func (a *Agent) load(command protocol.ReceiverReply) Load {
	out := Load{Version: command.Version, Offer: command.Offer}
	for _, parent := range command.Parents {
		if strings.HasPrefix(parent.URL, "/") {
			out.Parents = append(out.Parents, Parent{URL: a.Control + parent.URL, Control: true})
			continue
		}
		out.Parents = append(out.Parents, Parent{URL: parent.URL, Key: parent.Key, Dial: parent.Dial})
	}
	return out
}

// heartbeatEvery is the pause between two words of a receiver that is busy: a load may take
// minutes, and it is not lost for that.
const heartbeatEvery = 5 * time.Second

// heartbeat says now and then that the receiver is there.
func (a *Agent) heartbeat(ctx context.Context) {
	word := protocol.ReceiverRequest{Served: loop.NoVersion, Loaded: loop.NoVersion}
	a.sign(&word)
	for pause.For(ctx, heartbeatEvery) == nil {
		if _, err := a.ask(ctx, word); err != nil && ctx.Err() == nil {
			a.logf("telling %s that this is alive: %v", a.Control, err)
		}
	}
}

// execute carries out one command and returns the report of it.
func (a *Agent) execute(ctx context.Context, command protocol.ReceiverReply) protocol.ReceiverRequest {
	report := protocol.ReceiverRequest{Done: command.Seq}
	began := time.Now()
	var err error
	switch command.Kind {
	case protocol.ReceiveLoad:
		if command.Reload {
			err = a.Delivery.Discard(command.Version)
		}
		var p Phases
		if err == nil {
			p, err = a.Delivery.Fetch(ctx, a.load(command))
		}
		if p.Forged != nil {
			a.logf("version %d was fetched again from the control plane alone, since another receiver sent something else: %v", command.Version, p.Forged)
		}
		if p.Kept != nil {
			a.logf("removing versions that are not needed: %v", p.Kept)
		}
		report.Phases = map[string]float64{"first": p.FirstS, "transfer": p.TransferS, "commit": p.CommitS}
		if err == nil {
			a.loaded = command.Version
			a.logf("version %d loaded: %d bytes in %.3f s", command.Version, p.Bytes, p.TransferS+p.CommitS)
		}
	case protocol.ReceiveSwitch:
		if a.loaded != command.Version {
			err = fmt.Errorf("version %d is not loaded here", command.Version)
			break
		}
		if a.OnSwitch != nil {
			err = a.OnSwitch(ctx, command.Version, a.Delivery.Path(command.Version))
		}
		report.Phases = map[string]float64{"switch": time.Since(began).Seconds()}
		if err == nil {
			a.served, a.loaded = command.Version, loop.NoVersion
			a.Delivery.Served(command.Version)
			a.logf("version %d served", command.Version)
		}
	default:
		err = fmt.Errorf("the command is %q, want %s or %s: is this program older than the control plane?", command.Kind, protocol.ReceiveLoad, protocol.ReceiveSwitch)
	}
	if err != nil {
		a.served, a.loaded = loop.NoVersion, loop.NoVersion
		report.Error = err.Error()
		a.logf("%s version %d: %v", command.Kind, command.Version, err)
	}
	return report
}

// ask makes one request of the control plane.
func (a *Agent) ask(ctx context.Context, report protocol.ReceiverRequest) (command protocol.ReceiverReply, err error) {
	body, err := json.Marshal(report)
	if err != nil {
		return command, err
	}
	ctx, cancel := context.WithTimeout(ctx, (agentWaitS+agentSlackS)*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, a.Control+"/api/v1/receivers/"+a.Name, bytes.NewReader(body))
	if err != nil {
		return command, err
	}
	request.Header.Set("Content-Type", "application/json")
	authorize(request, a.Token)
	response, err := staying(a.Client).Do(request)
	if err != nil {
		return command, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	if err != nil {
		return command, err
	}
	if response.StatusCode != http.StatusOK {
		var refused protocol.ErrorBody
		if json.Unmarshal(text, &refused) == nil && refused.Error.Code != "" {
			return command, &refused.Error
		}
		return command, fmt.Errorf("%s: %.200s", response.Status, text)
	}
	return command, json.Unmarshal(text, &command)
}

func (a *Agent) logf(format string, args ...any) {
	if a.Logf == nil {
		return
	}
	a.logging.Lock()
	defer a.logging.Unlock()
	a.Logf(format, args...)
}
