package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headway-rl/headway/cmd/lab/bench/plane"
	"github.com/headway-rl/headway/cmd/lab/bench/played"
)

// order is what players are told to do: as many agents play rollouts at the cell, one after the other, each with one stream.
type order struct {
	URL    string        `json:"url"`
	Agents int           `json:"agents"`
	Events int           `json:"events"` // of a stream, in the mean
	Pause  time.Duration `json:"pause"`
}

// count is what players have done so far.
type count struct {
	// Engine is the address of their engine.
	Engine string `json:"engine"`
	// Active streams are open at the engine, which has sent Tokens.
	Active int64 `json:"active"`
	Tokens int64 `json:"tokens"`
	// Rollouts ended and count. Uncounted ones ended and do not. Gone are those that the cell did not know any more.
	Rollouts  int64 `json:"rollouts"`
	Uncounted int64 `json:"uncounted"`
	Gone      int64 `json:"gone"`
	// Refused calls were asked again, the last for Why. Cut streams were begun anew, with CutTokens lost.
	Refused   int64  `json:"refused"`
	Why       string `json:"why,omitempty"`
	Cut       int64  `json:"cut"`
	CutTokens int64  `json:"cut_tokens"`
	// Claims are the times of claims, in Unix milliseconds, of the last minutes.
	Claims []int64 `json:"claims"`
	// P99 is how much time an event took from the engine to the agent, in milliseconds, of streams that ended since the last count.
	P99 float64 `json:"p99"`
}

// players are a process with an engine and the agents of a cell.
type players struct {
	cmd    *exec.Cmd
	orders *json.Encoder

	mu    sync.Mutex
	last  count
	ended error
}

// startPlayers starts this program as players, and returns when their engine answers.
func startPlayers() (*players, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &players{cmd: exec.Command(program, "-play")}
	plane.Own(p.cmd)
	p.cmd.Stderr = os.Stderr
	in, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	p.orders = json.NewEncoder(in)
	out, err := p.cmd.StdoutPipe()
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		return nil, err
	}
	counts := json.NewDecoder(bufio.NewReader(out))
	if err := counts.Decode(&p.last); err != nil {
		p.stop()
		return nil, fmt.Errorf("players do not begin: %w", err)
	}
	go p.listen(counts)
	return p, nil
}

func (p *players) listen(counts *json.Decoder) {
	for {
		var c count
		err := counts.Decode(&c)
		p.mu.Lock()
		if err == nil {
			p.last = c
		}
		p.ended = err
		p.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (p *players) count() count {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last
}

func (p *players) stop() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// countEvery is the time between two counts.
const countEvery = 250 * time.Millisecond

// play is the program as players, until standard input ends.
func play() error {
	e, err := played.New()
	if err != nil {
		return err
	}
	defer e.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	a := &agents{engine: e, http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1 << 14, DisableCompression: true}}}
	go func() {
		defer cancel()
		orders := json.NewDecoder(os.Stdin)
		for {
			var o order
			if orders.Decode(&o) != nil {
				return
			}
			e.Round(played.Round{Pause: o.Pause, Spread: true})
			for range o.Agents {
				go a.play(ctx, o)
			}
		}
	}()
	out := json.NewEncoder(os.Stdout)
	for ctx.Err() == nil {
		if err := out.Encode(a.count()); err != nil {
			return err
		}
		time.Sleep(countEvery)
	}
	return nil
}

// agents play at one cell.
type agents struct {
	engine *played.Engine
	http   *http.Client

	rollouts, uncounted, gone, refused, cut, cutTokens atomic.Int64
	why                                                atomic.Pointer[string]
	mu                                                 sync.Mutex
	claims                                             []int64
	took                                               []float64
}

// claimsKept is how long the time of a claim is kept.
const claimsKept = 4 * time.Minute

func (a *agents) count() count {
	c := count{Engine: a.engine.URL(), Active: a.engine.Active(), Tokens: a.engine.Tokens(), Rollouts: a.rollouts.Load(), Uncounted: a.uncounted.Load(), Gone: a.gone.Load(),
		Refused: a.refused.Load(), Cut: a.cut.Load(), CutTokens: a.cutTokens.Load()}
	if why := a.why.Load(); why != nil {
		c.Why = *why
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	before := time.Now().Add(-claimsKept).UnixMilli()
	a.claims = slices.DeleteFunc(a.claims, func(at int64) bool { return at < before })
	c.Claims = slices.Clone(a.claims)
	if slices.Sort(a.took); len(a.took) > 0 {
		c.P99 = a.took[len(a.took)*99/100]
	}
	a.took = a.took[:0]
	return c
}

// again is the pause before a call that failed is made again.
const again = 100 * time.Millisecond

// play plays rollouts until the context ends.
func (a *agents) play(ctx context.Context, o order) {
	for ctx.Err() == nil {
		var claims struct {
			Rollouts []struct{ ID, Key, Secret string }
		}
		status := a.call(ctx, o.URL+"/api/v1/rollouts/claim", "", map[string]any{"worker": "bench", "wait_s": 30}, &claims)
		if status != http.StatusOK || len(claims.Rollouts) != 1 {
			continue
		}
		c := claims.Rollouts[0]
		a.mu.Lock()
		a.claims = append(a.claims, time.Now().UnixMilli())
		a.mu.Unlock()
		if !a.stream(ctx, o, c.Key) {
			continue
		}
		var reply struct{ Counted bool }
		switch status := a.call(ctx, o.URL+"/api/v1/rollouts/"+c.ID+"/finish", "", map[string]any{"worker": "bench", "secret": c.Secret, "reward": rand.Float64()}, &reply); {
		case status == http.StatusOK && reply.Counted:
			a.rollouts.Add(1)
		case status == http.StatusOK:
			a.uncounted.Add(1)
		case status != 0:
			a.gone.Add(1)
		}
	}
}

// call posts until it is answered by something else than that it is to come again, and returns the status, 0 when the context
// ended.
func (a *agents) call(ctx context.Context, url, key string, body, reply any) int {
	for ; ctx.Err() == nil; time.Sleep(again) {
		res, err := a.post(ctx, url, key, body)
		if err != nil {
			continue
		}
		text, err := io.ReadAll(res.Body)
		res.Body.Close()
		switch {
		case err != nil:
			continue
		case res.StatusCode == http.StatusServiceUnavailable || res.StatusCode == http.StatusTooManyRequests:
			a.isRefused(text)
			continue
		case res.StatusCode == http.StatusOK && json.Unmarshal(text, reply) != nil:
			continue
		}
		return res.StatusCode
	}
	return 0
}

func (a *agents) isRefused(text []byte) {
	a.refused.Add(1)
	why := string(text)
	a.why.Store(&why)
}

func (a *agents) post(ctx context.Context, url, key string, body any) (*http.Response, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	return a.http.Do(req)
}

// stream plays the one response of a rollout. A stream that is cut is begun anew by the same call.
func (a *agents) stream(ctx context.Context, o order, key string) (whole bool) {
	events := o.Events/2 + rand.IntN(o.Events) // so that ends are spread
	body := map[string]any{"model": "policy", "prompt": []int{3, 4, 5}, "max_tokens": events, "stream": true, "temperature": 1, "logprobs": 0, "return_token_ids": true}
	for ; ctx.Err() == nil; time.Sleep(again) {
		res, err := a.post(ctx, o.URL+"/v1/completions", key, body)
		if err != nil {
			continue
		}
		if res.StatusCode != http.StatusOK {
			text, _ := io.ReadAll(io.LimitReader(res.Body, 1000))
			res.Body.Close()
			if res.StatusCode != http.StatusServiceUnavailable && res.StatusCode != http.StatusTooManyRequests {
				a.gone.Add(1)
				return false
			}
			a.isRefused(text)
			continue
		}
		took, err := played.Follow(res.Body, events)
		res.Body.Close()
		if err == nil {
			a.mu.Lock()
			a.took = append(a.took, took...)
			a.mu.Unlock()
			return true
		}
		if ctx.Err() == nil {
			a.cut.Add(1)
			a.cutTokens.Add(int64(len(took)))
		}
	}
	return false
}
