package vllm

import (
	"os"
	"sync"
	"testing"

	"github.com/headway-rl/headway/engine/upstream"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/channel"
	"github.com/headway-rl/headway/loop/port"
)

// TestRealRows has a real server say the rows of two turns of some conversations, a few at once. A server loses rows
// of a stream now and then: those are counted, and all others are whole.
func TestRealRows(t *testing.T) {
	address := os.Getenv("HEADWAY_TEST_VLLM_ROUTING")
	if address == "" {
		t.Skip("HEADWAY_TEST_VLLM_ROUTING is not set: the address of a vLLM started with --enable-return-routed-experts")
	}
	s, err := upstream.NewServer(upstream.ServerOptions{URL: address})
	if err != nil {
		t.Fatal(err)
	}
	s.Channels, s.Experts = []string{channel.RoutedExperts}, routingModel
	e, err := upstream.New(upstream.Options{Name: "real", Slots: 8, Server: s, Dialect: New(), Logf: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if err := e.Load(limited(t), 0); err != nil {
		t.Fatal(err)
	}
	if err := e.Switch(limited(t), 0, false); err != nil {
		t.Fatal(err)
	}
	const conversations = 16
	var all sync.WaitGroup
	queue := make(chan int)
	var mu sync.Mutex
	answers := 0
	for range 8 {
		all.Go(func() {
			for i := range queue {
				n := realConversation(t, e, i)
				mu.Lock()
				answers += n
				mu.Unlock()
			}
		})
	}
	for i := range conversations {
		queue <- i
	}
	close(queue)
	all.Wait()
	status := e.Status().Channels
	if len(status) != 1 {
		t.Fatalf("status %v", status)
	}
	t.Logf("%d answers with rows, dropped %v", answers, status[0].Dropped)
	dropped := int64(0)
	for why, n := range status[0].Dropped {
		if dropped += n; string(why) != "missing" {
			t.Errorf("%d answers are dropped: %s", n, why)
		}
	}
	if int64(answers)+dropped != 2*conversations || status[0].Answers != int64(answers) || answers == 0 || status[0].Unstarted != 0 {
		t.Errorf("%d of %d answers had rows: %+v", answers, 2*conversations, status[0])
	}
}

// realConversation plays two turns and returns how many of them had rows.
func realConversation(t *testing.T, e *upstream.Engine, i int) (answers int) {
	prompt := []int32{5, 6, 7, int32(8 + i), 9}
	known := 0
	for turn := range 2 {
		start := -1
		g, err := e.Generate(t.Context(), port.GenerateRequest{
			Rollout: port.RolloutID{Group: loop.GroupID(i), Attempt: 1}, Turn: turn, Prompt: prompt, MaxTokens: 20, Known: known,
			Keep: func(r port.Rows) {
				answers++
				if start = r.Start; r.First != len(prompt) || len(r.Data) != r.Count*routingWidth {
					t.Errorf("%d rows from %d on after %d tokens, %d bytes", r.Count, r.Start, r.First, len(r.Data))
				}
				known = r.Start + r.Count
			},
		})
		if err != nil {
			t.Error(err)
			return answers
		}
		if start >= 0 && known != len(prompt)+len(g.Tokens)-1 {
			t.Errorf("turn %d: rows up to %d of %d tokens", turn, known, len(prompt)+len(g.Tokens))
		}
		prompt = append(append(prompt[:len(prompt):len(prompt)], g.Tokens...), 11, 12)
	}
	return answers
}
