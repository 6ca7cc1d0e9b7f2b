package llamacpp

import (
	"fmt"
	"math"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/headway-rl/headway/engine/enginetest"
	"github.com/headway-rl/headway/engine/upstream"
	"github.com/headway-rl/headway/loop/port"
)

// address is that of the real server that the environment names.
func address(t *testing.T) string {
	t.Helper()
	url := os.Getenv("HEADWAY_TEST_LLAMACPP")
	if url == "" {
		t.Skip("HEADWAY_TEST_LLAMACPP is not set: the address of a llama-server started as `make test-engines` does")
	}
	return url
}

// number reads a number from the environment.
func number(name string, otherwise int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return n
	}
	return otherwise
}

func TestConformance(t *testing.T) {
	report := enginetest.Run(t, enginetest.Subject{
		URL: address(t), Dialect: func() upstream.Dialect { return New(Options{}) }, Delivery: upstream.DeliveryNone,
		Requests: number("HEADWAY_TEST_REQUESTS", 60), Slots: 4, Seed: 1,
	})
	t.Logf("progress: %+v", report)
}

// Tokens are drawn with the probabilities that the server gives them, whatever the temperature and
// the cuts: the mean of -log p over many draws of one token is the entropy of their distribution.
func TestProbabilitiesAreOfTheSampledDistribution(t *testing.T) {
	s := reach(t, address(t))
	caps, err := New(Options{}).Probe(limited(t), s)
	if err != nil {
		t.Fatal(err)
	}
	if caps.Vocabulary > 1000 {
		t.Skipf("the model has %d tokens: too many to count draws of each", caps.Vocabulary)
	}
	draws := number("HEADWAY_TEST_REQUESTS", 60)
	for _, how := range []port.Sampling{{Temperature: 1}, {Temperature: 0.5}, {Temperature: 2}, {Temperature: 1, TopK: 5}, {Temperature: 0.7, TopP: 0.8}} {
		counts, given := map[int32]int{}, map[int32]float64{}
		for i := range draws {
			d, err := sample(t, s, &caps, upstream.Request{ID: fmt.Sprintf("draw-%v-%d|", how, i), Prompt: prompt, MaxTokens: 1, Sampling: how})
			if err != nil || len(d.Tokens) != 1 {
				t.Fatal(d, err)
			}
			counts[d.Tokens[0]]++
			given[d.Tokens[0]] = math.Exp(float64(d.Logprobs[0]))
		}
		// Pearson's statistic: a token that was not drawn adds what was expected of it.
		statistic, left, cells := 0.0, 1.0, caps.Vocabulary
		for token, n := range counts {
			expected := float64(draws) * given[token]
			statistic += (float64(n) - expected) * (float64(n) - expected) / expected
			left -= given[token]
		}
		statistic += max(left, 0) * float64(draws)
		// Its mean is at most the number of tokens; six deviations above it are out of the question.
		if limit := float64(cells) + 6*math.Sqrt(2*float64(cells)); statistic > limit || left < -1e-3 {
			t.Errorf("%+v: Pearson's statistic is %.1f over %d tokens, want at most %.1f; %g is left for the others", how, statistic, cells, limit, left)
		}
	}
}

// A real server is started with one model, then with another, whose log-probs are others.
func TestRealRestart(t *testing.T) {
	program, models := os.Getenv("HEADWAY_TEST_LLAMACPP_BIN"), strings.Split(os.Getenv("HEADWAY_TEST_WEIGHTS"), ":")
	if program == "" || len(models) != 2 {
		t.Skip("HEADWAY_TEST_LLAMACPP_BIN is not set to the llama-server program, or HEADWAY_TEST_WEIGHTS to two GGUF files")
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	host, port, _ := net.SplitHostPort(free.Addr().String())
	_ = free.Close()
	d := New(Options{Command: []string{program, "-m", "{weights}", "--host", host, "--port", port, "-c", "512", "-np", "2", "-t", "1", "--alias", "{label}"}, Logf: t.Logf})
	s := reach(t, "http://"+net.JoinHostPort(host, port))
	defer func() {
		if err := d.Stop(); err != nil {
			t.Error(err)
		}
	}()
	var scores [3][]float32
	for i, model := range []string{models[0], models[1], models[0]} {
		label := fmt.Sprintf("v%d", i)
		if err := d.Update(limited(t), s, upstream.Update{Dir: model, Label: label}, nil); err != nil {
			t.Fatal(err)
		}
		caps, err := d.Probe(limited(t), s)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := d.Version(limited(t), s, &caps); err != nil || got != label {
			t.Errorf("it serves %q, want %q, %v", got, label, err)
		}
		if scores[i], err = d.Score(limited(t), s, prompt, &caps); err != nil {
			t.Fatal(err)
		}
	}
	same, other := true, false
	for i := range scores[0] {
		same = same && math.Abs(float64(scores[0][i]-scores[2][i])) < 1e-4
		other = other || math.Abs(float64(scores[0][i]-scores[1][i])) > 1e-3
	}
	if !same || !other {
		t.Errorf("log-probs %v, then %v of the other model, then %v", scores[0], scores[1], scores[2])
	}
}
