package scenario

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/app/plane"
	"github.com/headway-rl/headway/app/record"
	"github.com/headway-rl/headway/cmd/lab/world/client"
	"github.com/headway-rl/headway/cmd/lab/world/machine"
	"github.com/headway-rl/headway/cmd/lab/world/plan"
	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/engine/enginetest"
	"github.com/headway-rl/headway/explain/dashboard"
	"github.com/headway-rl/headway/loop/trace"
	"github.com/headway-rl/headway/store/weights"
)

// Start is the name of the weights that an engine starts with, which stand for version 0.
const Start = "as started"

// Policy is the model that every engine serves.
var Policy = enginetest.Policy{Vocabulary: 64, EOS: 4, Length: 12}

const (
	runName        = "world"
	responseTokens = 24
	// promptTokensMax and contextTokens are those of a world whose prompts are short.
	promptTokensMax = 64
	contextTokens   = 256
	apiPort         = ":7070"
	verifierPort    = ":9000"
)

// token is that of a role.
func token(role string) string { return role + "-of-a-world-with-one-seed" }

// servePlane is headway serve.
func (w *World) servePlane(h *machine.Host) error {
	cfg, process, err := begun(h.Name, h.Name)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", cfg.Server.Listen)
	if err != nil {
		return err
	}
	around := record.Surroundings{
		Program: "world", Version: "0",
		Lines: func(string) record.View { return noView{} },
		Pages: func(_, _ string, header trace.Header) dashboard.Options {
			return dashboard.Options{Rules: header.Loop.WithDefaults()}
		},
	}
	p, err := plane.New(process, around, cfg, filepath.Join(cfg.Store.Dir, runName), runName, listener)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	w.mu.Lock()
	w.drains[h] = func() { p.Drain(cancel) }
	w.mu.Unlock()
	err = errors.Join(p.Serve(ctx, cancel, nil), p.Close())
	if err != nil {
		fmt.Fprintln(process.Stderr, "ended:", err)
	} else if l := w.actors[h.Name].leaving.Load(); w.Steps() >= w.plan.Steps || l == nil || l.host != h { // a trainer that stood still for long was not told
		w.ended.Store(true)
	}
	return err
}

// begun is what a process of Headway has on a host: a plane's document, and a log.
func begun(host, plane string) (cfg config.Config, process *app.Process, err error) {
	if cfg, err = config.LoadWith(plane + ".yaml"); err != nil {
		return cfg, nil, err
	}
	logs, err := os.OpenFile(host+".log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	return cfg, &app.Process{
		Stdin: strings.NewReader(""), Stdout: logs, Stderr: logs, Now: time.Now,
		IsTerminal: func(any) bool { return false }, Getenv: func(string) string { return "" },
	}, err
}

// noView shows nothing.
type noView struct{}

func (noView) Update(record.Progress) {}
func (noView) Message(string)         {}

func (w *World) serveEngine(h *machine.Host, i int) error {
	e, l := w.plan.Engines[i], &liar{w: w, engine: h.Name, user: "plane"}
	if e.Cell > 0 {
		l.user = plan.CellName(e.Cell)
	}
	server := enginetest.NewPolicyServer(enginetest.PolicyOptions{
		Policy: Policy, Listen: 8000, Context: contextTokens + w.plan.Store.Prompt, Weights: Start, Spans: e.Spans, Rows: w.plan.Rows, Chat: w.plan.Chat != nil,
		Step: time.Duration(e.TokenUS) * time.Microsecond,
		Named: func(dir string) (string, error) {
			time.Sleep(time.Duration(e.LoadMS) * time.Millisecond)
			return weightsOf(dir, func(version, hash string) {
				w.note(h.Name, "note", fmt.Sprintf("reads %s %s %s", strings.TrimLeft(version, "v0"), weights.ModelName, hash))
			})
		},
		Answered: l.answered, Deaf: l.deaf,
	})
	w.mu.Lock()
	w.servers[h.Name] = server
	w.mu.Unlock()
	if w.plan.Chat != nil && w.plan.Chat.Players > 0 && i == 0 {
		mux := http.NewServeMux()
		mux.HandleFunc("/verify", verify)
		mux.Handle("/", (&environment{turns: w.plan.Chat.Turns}).handler())
		return http.ListenAndServe(verifierPort, mux)
	}
	select {}
}

// verify judges the rollouts that planes play, on the first engine's host: a program of the machine's would run by its clock.
func verify(rw http.ResponseWriter, r *http.Request) {
	var asked struct{ ID, Response string }
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
		http.Error(rw, err.Error(), http.StatusBadRequest)
		return
	}
	rw.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(rw, `{"id": %q, "reward": %g}`, asked.ID, float64(len(asked.Response)%4)/4)
}

// liar says that its engine has taken new weights while it goes on with the old ones. The program that uses the engine finds
// that out by what the engine computes: it has to have seen the engine serve before.
type liar struct {
	w            *World
	engine, user string       // user is the role or the name of the hosts whose programs use the engine
	seenBy       atomic.Value // the programs that it has answered, as a string
}

func (l *liar) answered(id string) {
	if strings.Contains(id, "hw-") { // a rollout's, and no question of what the engine can
		l.seenBy.Store(l.w.programs(l.user))
	}
}

func (l *liar) deaf() bool {
	return l.seenBy.Load() == l.w.programs(l.user) && l.w.is(l.w.deaf, l.engine)
}

// clientOptions are those of a client of the planes on a host.
func (w *World) clientOptions(h *machine.Host, role string) client.Options {
	return client.Options{
		HTTP: w.http(h), URLs: w.planeURLs(), Token: token(role),
		Rand: rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())), Patience: 120 * time.Second,
	}
}

// channels are the side channels of the run.
func (w *World) channels() []string {
	if w.plan.Rows {
		return []string{"routed_experts"}
	}
	return nil
}

func (w *World) serveWorker(h *machine.Host) error {
	options, homes, number := w.clientOptions(h, "environment"), w.plan.Homes(), 0
	if _, err := fmt.Sscanf(h.Name, "worker%d", &number); err != nil {
		return err
	}
	if len(homes) == 0 {
		select {} // whatever it asked, it would be refused, and end
	}
	if cell := homes[number%len(homes)]; cell != "" {
		options.URLs = []string{"http://" + w.actors[cell].host.Load().IP + apiPort}
	}
	k, err := client.NewWorker(client.WorkerOptions{
		Options: options, Name: h.Name, Concurrency: 4,
		Environments: map[string]client.Play{"numbers": w.play()},
	})
	if err != nil {
		return err
	}
	_, err = k.Run(context.Background())
	return err
}

// play is how workers play.
func (w *World) play() client.Play {
	c := w.plan.Chat
	if c == nil {
		return client.SingleTurn(w.question, responseTokens)
	}
	return client.Agent{Turns: c.Turns, Choices: c.Choices, Tokens: responseTokens, Stream: c.Stream, Leave: time.Duration(c.LeaveMS) * time.Millisecond}.Play(w.question)
}

// prompts is how many there are.
const prompts = 50

// prompt is that of a number.
func prompt(number uint64) []int32 { return []int32{5, 6 + int32(number%prompts), 7} }

// question has the reward follow from the tokens, so that it can be computed again from a batch.
func (w *World) question(task *client.Task) client.Question {
	tokens := prompt(task.Prompt)
	more := w.plan.Store.Prompt
	if more == 0 && w.plan.Trainer.Window > 0 && w.plan.Chat == nil {
		more = 50
	}
	for i := range more {
		tokens = append(tokens, 6+int32((task.Prompt+uint64(i))%prompts))
	}
	return client.Question{Tokens: tokens, Text: Policy.Spell(tokens...), Verify: func(_ string, tokens []int32) (client.Result, error) {
		time.Sleep(time.Duration(w.plan.ThinkMS) * time.Millisecond)
		var sum int32
		for _, t := range tokens {
			sum += t
		}
		return client.Result{Reward: float64(sum%4) / 4}, nil
	}}
}

// serveObserver asks every plane how it is, again and again.
func (w *World) serveObserver(h *machine.Host) error {
	c := w.http(h)
	c.Timeout = 5 * time.Second
	for {
		for _, url := range w.planeURLs() {
			request, err := http.NewRequest(http.MethodGet, url+"/api/v1/status", nil)
			if err != nil {
				return err
			}
			request.Header.Set("Authorization", "Bearer "+token("viewer"))
			if response, err := c.Do(request); err == nil {
				var all bytes.Buffer
				_, _ = all.ReadFrom(response.Body)
				_ = response.Body.Close()
			}
		}
		time.Sleep(time.Second)
	}
}
