package upstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/headway-rl/headway/loop"
)

// scoreTokens is the length of the sequence by which weights are told apart.
const scoreTokens = 32

// fingerprint is what log-probs a fixed sequence has under weights, which are named by loaded.content.
type fingerprint struct {
	weights string
	scores  []float32
}

// trial is an update that a server was asked for, and how often it had been lost by then. before are
// the weights of the one before, if it has not been lost since.
type trial struct {
	weights, before string
	losses          int64
}

// next is the trial after t.
func (t trial) next(weights string, losses int64) trial {
	n := trial{weights: weights, losses: losses}
	if t.losses == losses {
		n.before = t.weights
	}
	return n
}

// lookBefore notes what the server computes before an update. Where its weights are unknown, or named otherwise than it was
// told, it is asked: it may be another one than the one that was verified last, started again unnoticed. At the start
// nothing is noted: the server may well have the very weights already.
func (e *Engine) lookBefore(ctx context.Context, caps *Capabilities) error {
	e.mu.Lock()
	unknown := e.served == loop.NoVersion
	e.mu.Unlock()
	if e.stood = e.score.scores; e.stood == nil {
		return nil
	}
	if !unknown && e.confirmed != "" {
		label, err := e.opt.Dialect.Version(ctx, e.opt.Server, caps)
		if err != nil {
			return fmt.Errorf("asking what it serves before the update: %w", err)
		}
		unknown = label != e.confirmed
	}
	if !unknown {
		return nil
	}
	if e.owed.Load() { // it would not answer while it is paused
		if err := e.tryResume(ctx, e.owing); err != nil {
			return fmt.Errorf("resuming: %w", err)
		}
	}
	var err error
	e.stood, err = e.scores(ctx, caps)
	return err
}

// verify makes sure that an update has changed what the server computes, where it can say: the
// log-probs of a fixed sequence are others than before, unless the weights are the same.
func (e *Engine) verify(ctx context.Context, caps *Capabilities) error {
	scores, err := e.scores(ctx, caps)
	if err != nil || scores == nil {
		return err
	}
	if slices.Equal(e.stood, scores) {
		if err := e.unchanged(scores); err != nil {
			e.tried = trial{} // it has not taken it
			return err
		}
	}
	// One that was started again since has computed with other weights.
	if _, err := e.labelOf(ctx, Update{Label: e.label(e.loaded.version)}, caps); err != nil {
		return err
	}
	e.score = fingerprint{e.loaded.content(), scores}
	return nil
}

// unchanged judges an update after which the server computes what it did before.
func (e *Engine) unchanged(scores []float32) error {
	known, now := e.score, e.loaded.content()
	if known.weights == now {
		if near(known.scores, scores) {
			return nil
		}
		return fmt.Errorf("%w: the update has not changed the log-probs of a fixed sequence, as the weights of %s did: it has not taken them", ErrLied, now)
	}
	if !slices.Equal(known.scores, scores) {
		if e.tried.before == now { // they are those that it was given before
			return nil
		}
		return fmt.Errorf("%w: the update to %s has not changed the log-probs of a fixed sequence, which are of unknown weights: it has not taken them", ErrLied, now)
	}
	same, err := sameWeights(known.weights, now)
	if err != nil {
		return fmt.Errorf("the update has not changed the log-probs of a fixed sequence, and the weights cannot be compared: %w", err)
	}
	if !same {
		return fmt.Errorf("%w: the update has not changed the log-probs of a fixed sequence, and the weights of %s and %s differ: it has not taken them", ErrLied, known.weights, now)
	}
	return nil
}

// sameWeights reports whether weights of two names are the same: digests tell by themselves, files are compared.
func sameWeights(a, b string) (bool, error) {
	if strings.HasPrefix(a, digestMark) || strings.HasPrefix(b, digestMark) {
		return a == b, nil
	}
	return sameWeightFiles(a, b)
}

// nearMean is how far log-probs of the same tokens under the same weights may be from each other in
// the mean, in nats: what a server computes depends a little on what else it computes.
const nearMean = 0.01

func near(a, b []float32) bool {
	if len(a) != len(b) {
		return false
	}
	sum := 0.0
	for i := range a {
		sum += math.Abs(float64(a[i]) - float64(b[i]))
	}
	return sum <= nearMean*float64(len(a))
}

// scores are the log-probs of the fixed sequence, nil where the server cannot say. One that is full
// answers when it has room: some of what it samples is cut off for it after a while, and goes on later.
func (e *Engine) scores(ctx context.Context, caps *Capabilities) ([]float32, error) {
	scorer, ok := e.opt.Dialect.(Scorer)
	if !ok || !caps.Score {
		return nil, nil
	}
	answered := make(chan struct{})
	var beside sync.WaitGroup
	beside.Go(func() { e.makeRoom(answered) })
	scores, err := scorer.Score(ctx, e.opt.Server, scoreSequence(e.vocabulary(caps)), caps)
	close(answered)
	beside.Wait()
	if err != nil {
		return nil, fmt.Errorf("asking for the log-probs of a fixed sequence: %w", err)
	}
	return scores, nil
}

// roomPause is how long a server may take to answer before some of what it samples is cut off.
const roomPause = 2 * time.Second

// makeRoom cuts off more and more responses until what they stand in the way of is answered.
func (e *Engine) makeRoom(answered <-chan struct{}) {
	ticker := time.NewTicker(roomPause)
	defer ticker.Stop()
	for n := 1; ; n *= 2 {
		select {
		case <-answered:
			return
		case <-ticker.C:
		}
		e.mu.Lock()
		left := n
		for s := range e.streams {
			if left == 0 {
				break
			}
			if s.halted.Load() == nil {
				s.stop(haltCut)
				left--
			}
		}
		e.mu.Unlock()
	}
}

// scoreSequence is spread over the vocabulary, of which at least the first ids are there.
func scoreSequence(vocabulary int) []int32 {
	if vocabulary <= 0 {
		vocabulary = 32
	}
	tokens := make([]int32, scoreTokens)
	for i := range tokens {
		tokens[i] = int32((i*7919 + 11) % vocabulary)
	}
	return tokens
}

// sameWeightFiles reports whether two directories have the same weights, byte by byte.
func sameWeightFiles(a, b string) (bool, error) {
	in, err := weightFiles(a)
	if err != nil {
		return false, err
	}
	other, err := weightFiles(b)
	if err != nil || !slices.Equal(in, other) {
		return false, err
	}
	for _, name := range in {
		if same, err := sameFile(filepath.Join(a, name), filepath.Join(b, name)); !same || err != nil {
			return false, err
		}
	}
	return true, nil
}

// weightFiles lists a directory's files of weights.
func weightFiles(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	var names []string
	for _, entry := range entries {
		if filepath.Ext(entry.Name()) == ".safetensors" {
			names = append(names, entry.Name())
		}
	}
	return names, err
}

func sameFile(a, b string) (bool, error) {
	first, err := os.Open(a)
	if err != nil {
		return false, err
	}
	defer first.Close()
	second, err := os.Open(b)
	if err != nil {
		return false, err
	}
	defer second.Close()
	inA, errA := first.Stat()
	inB, errB := second.Stat()
	if err := errors.Join(errA, errB); err != nil {
		return false, err
	}
	if os.SameFile(inA, inB) {
		return true, nil
	}
	if inA.Size() != inB.Size() {
		return false, nil
	}
	return sameBytes(first, second)
}

func sameBytes(a, b io.Reader) (bool, error) {
	left, right := make([]byte, 1<<20), make([]byte, 1<<20)
	for {
		n, errA := io.ReadFull(a, left)
		m, errB := io.ReadFull(b, right)
		if !bytes.Equal(left[:n], right[:m]) {
			return false, nil
		}
		if n < len(left) { // both have ended, or one cannot be read
			for _, err := range []error{errA, errB} {
				if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
					return false, err
				}
			}
			return true, nil
		}
	}
}
