package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/cmd/lab/bench/plane"
	"github.com/headway-rl/headway/loop"
)

const (
	learnSteps = 30
	// learnKill is after how many versions the control plane is killed and started again.
	learnKill = 10
	// learnShown is how many steps at either end are shown, and compared.
	learnShown = 5
	learnSlots = 16
	// kindTokens is the length of a prompt and of a response.
	kindTokens = 4
)

// The kinds of tokens of the task, by the ids that tiny.py gives them.
var digitKind, letterKind = [2]int32{6, 16}, [2]int32{23, 49}

// learnDocument is a run as somebody would write it who has a service and no GPU.
const learnDocument = `
seed: 3
model: {path: %q}
engines:
  - {kind: tinker, url: %q, served_model: %q, slots: %d, piece_tokens: 64}
environment: {kind: remote, name: kinds, prompt_tokens_max: 16, response_tokens_max: %d}
rollout: {group_size: 8, concurrency: %d}
train: {batch: 64}
trainer: {kind: tinker, steps: %d, learning_rate: 0.001, adapter_rank: %d}
`

// learns runs headway serve with the service as engine and trainer and plays it a task: a prompt is of digits or of
// letters, and the reward is the share of the response that is of the same kind. The control plane is killed once.
func (s *tinkerSuite) learns(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "headway")
	if out, err := exec.Command("go", "build", "-o", program, "../../../headway").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	text := fmt.Sprintf(learnDocument, s.base, s.url, s.base, learnSlots, kindTokens, learnSlots, learnSteps, tinkerRank)
	if err := os.WriteFile(filepath.Join(dir, "run.yaml"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	port, err := plane.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	p := &learnPlane{t: t, dir: dir, program: program, address: fmt.Sprintf("127.0.0.1:%d", port), metrics: filepath.Join(dir, "runs", "r", "metrics.jsonl")}
	p.args = []string{"run.yaml", "--listen", p.address, "--name", "r", "--dir", "runs"}
	t.Cleanup(p.kill)
	workers, leave := context.WithCancel(t.Context())
	var played sync.WaitGroup
	defer played.Wait()
	defer leave()
	for i := range learnSlots {
		played.Go(func() { p.work(workers, i) })
	}
	began := time.Now()
	p.start()
	p.await(learnKill)
	p.kill()
	t.Logf("progress: killed after %d versions", len(p.steps()))
	p.start()
	p.await(learnSteps)
	s.judge(t, p, time.Since(began))
}

// learnPlane is a control plane in a process of its own, and the workers that play for it.
type learnPlane struct {
	t                              *testing.T
	dir, program, address, metrics string
	// args are what it is started with, after serve.
	args []string

	cmd    *exec.Cmd
	said   bytes.Buffer
	exited chan struct{}
	// finished are the rollouts of which a worker was told that they count.
	finished atomic.Int64
}

// start starts the process, which goes on with what is there.
func (p *learnPlane) start() {
	p.cmd = exec.Command(p.program, append([]string{"serve"}, p.args...)...)
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = p.dir, &p.said, &p.said
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	exited := make(chan struct{})
	p.exited = exited
	go func() {
		_ = p.cmd.Wait() // the state has its code
		close(exited)
	}()
}

// kill ends the process at once, if it runs.
func (p *learnPlane) kill() {
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.exited
}

// await returns when the run has made so many versions.
func (p *learnPlane) await(versions int) {
	p.t.Helper()
	for shown := 0; ; {
		steps := p.steps()
		if len(steps)/10 > shown {
			shown = len(steps) / 10
			last := steps[len(steps)-1]
			p.t.Logf("progress: version %d, reward %.3f, staleness %.2f", last.Step, last.Reward, last.Staleness)
		}
		if len(steps) >= versions {
			return
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-p.exited:
			if len(p.steps()) < versions {
				p.t.Fatalf("the control plane has ended after %d versions of %d:\n%s", len(p.steps()), versions, p.said.String())
			}
		case <-p.t.Context().Done():
			p.t.Fatal(context.Cause(p.t.Context()))
		}
	}
}

// learnStep is what a line of a run's metrics says.
type learnStep struct {
	Step      loop.Version `json:"step"`
	Reward    float64      `json:"reward"`
	Staleness float64      `json:"staleness_mean"`
	PeriodS   float64      `json:"period_s"`
	// Metrics are those that the trainer says.
	Metrics   map[string]float64 `json:"metrics"`
	OffPolicy []struct {
		Staleness    string  `json:"staleness"`
		Tokens       int     `json:"tokens"`
		MeanLogRatio float64 `json:"mean_log_ratio"`
	} `json:"off_policy"`
}

// steps are the train steps so far: of one that was made again after the kill the last line counts.
func (p *learnPlane) steps() []learnStep {
	file, err := os.Open(p.metrics)
	if err != nil {
		return nil // not yet
	}
	defer file.Close()
	var steps []learnStep
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var l learnStep
		if json.Unmarshal(lines.Bytes(), &l) != nil {
			continue // it is being written
		}
		for len(steps) > 0 && steps[len(steps)-1].Step >= l.Step {
			steps = steps[:len(steps)-1]
		}
		steps = append(steps, l)
	}
	return steps
}

// work plays rollouts until it is to leave; a control plane that is gone is waited for.
func (p *learnPlane) work(ctx context.Context, number int) {
	name := fmt.Sprintf("worker-%d", number)
	for ctx.Err() == nil {
		if !p.play(ctx, name) {
			select {
			case <-time.After(300 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	}
}

// play plays one rollout; false where there was none, or it came to nothing.
func (p *learnPlane) play(ctx context.Context, name string) bool {
	var claims protocol.Claims
	if !p.post(ctx, "/api/v1/rollouts/claim", protocol.ClaimRequest{Worker: name, WaitS: 5}, &claims) || len(claims.Rollouts) == 0 {
		return false
	}
	claim := claims.Rollouts[0]
	draw := rand.New(rand.NewPCG(claim.Seed, claim.Prompt))
	kind := [2][2]int32{digitKind, letterKind}[draw.IntN(2)]
	prompt := make([]int32, kindTokens)
	for i := range prompt {
		prompt[i] = kind[0] + draw.Int32N(kind[1]-kind[0])
	}
	var reply protocol.SampleReply
	path := "/api/v1/rollouts/" + claim.ID
	if !p.post(ctx, path+"/sample", protocol.SampleRequest{Worker: name, Secret: claim.Secret, Prompt: prompt, MaxTokens: kindTokens}, &reply) {
		return false
	}
	right := 0
	for _, token := range reply.Tokens {
		if token >= kind[0] && token < kind[1] {
			right++
		}
	}
	var done protocol.FinishReply
	finish := protocol.FinishRequest{Worker: name, Secret: claim.Secret, Reward: new(float32(right) / kindTokens), Exact: right == kindTokens}
	if p.post(ctx, path+"/finish", finish, &done) && done.Counted {
		p.finished.Add(1)
	}
	return true
}

// post asks the control plane; false where it gives no reply.
func (p *learnPlane) post(ctx context.Context, path string, body, reply any) bool {
	text, err := json.Marshal(body)
	if err != nil {
		p.t.Error(err)
		return false
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+p.address+path, bytes.NewReader(text))
	if err != nil {
		p.t.Error(err)
		return false
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	defer res.Body.Close()
	return res.StatusCode == http.StatusOK && json.NewDecoder(res.Body).Decode(reply) == nil
}

// judge says what the run has come to.
func (s *tinkerSuite) judge(t *testing.T, p *learnPlane, took time.Duration) {
	steps := p.steps()
	for i, l := range steps {
		if int(l.Step) != i+1 {
			t.Fatalf("train step %d made version %d", i+1, l.Step)
		}
	}
	first, last := meanReward(steps[:learnShown]), meanReward(steps[len(steps)-learnShown:])
	if last < first+0.2 {
		t.Errorf("the mean reward was %.3f at first and is %.3f: want it to rise", first, last)
	}
	staleness, ratio, tokens := 0.0, 0.0, 0
	for _, l := range steps {
		staleness += l.Staleness / float64(len(steps))
		for _, r := range l.OffPolicy {
			if r.Staleness == "0" {
				ratio, tokens = ratio+r.MeanLogRatio*float64(r.Tokens), tokens+r.Tokens
			}
		}
	}
	if tokens > 0 {
		ratio = math.Abs(ratio) / float64(tokens)
	}
	if tokens == 0 || ratio > tinkerNumerics {
		t.Errorf("the mean log-ratio of %d tokens of the weights that were trained is %.2g: want at most %g", tokens, ratio, tinkerNumerics)
	}
	if out, err := exec.Command(p.program, "replay", filepath.Join(p.dir, "runs", "r")).CombinedOutput(); err != nil {
		t.Errorf("the run's decisions cannot be replayed: %v: %s", err, out)
	}
	predicted := p.resimulated()
	t.Logf("progress: reward %.3f to %.3f, staleness %.2f, resimulated %.2f, log-ratio at lag 0 %.2g over %d tokens, %d rollouts, %v", first, last, staleness, predicted, ratio, tokens, p.finished.Load(), took.Round(time.Second))
	s.learn("train steps of headway serve, engine and trainer the service, the control plane killed once", len(steps))
	s.learn("mean reward of the first five, in thousandths", thousandths(first))
	s.learn("mean reward of the last five, in thousandths", thousandths(last))
	s.learn("mean staleness, in thousandths of a version", thousandths(staleness))
	s.learn("the same, resimulated from the run's own times", thousandths(predicted))
	s.learn("tokens of batches that were sampled with the weights that were trained", tokens)
	s.learn("mean log-ratio of these, in millionths of a nat", int(math.Ceil(ratio*1e6)))
	s.learn("seconds it took", int(took.Seconds()))
}

// resimulated is the mean staleness that the run's own lengths and times give in the loop.
func (p *learnPlane) resimulated() float64 {
	out, err := exec.Command(p.program, "resimulate", filepath.Join(p.dir, "runs", "r"), "--json").Output()
	if err != nil {
		p.t.Errorf("resimulate: %v", err)
		return 0
	}
	var said struct {
		Own struct {
			Summary struct {
				Staleness struct{ Mean float64 }
			}
		}
	}
	if err := json.Unmarshal(out, &said); err != nil {
		p.t.Errorf("resimulate: %v", err)
	}
	return said.Own.Summary.Staleness.Mean
}

func meanReward(steps []learnStep) float64 {
	sum := 0.0
	for _, l := range steps {
		sum += l.Reward
	}
	return sum / float64(len(steps))
}

func thousandths(x float64) int { return int(math.Round(1000 * x)) }
