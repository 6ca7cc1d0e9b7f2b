package upstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
)

// scoreTokens is the length of the sequence by which weights are told apart.
const scoreTokens = 32

// fingerprint is what log-probs a fixed sequence has under the weights of a directory.
type fingerprint struct {
	dir    string
	scores []float32
}

// verify makes sure that an update has changed what the server computes, where it can say: the
// log-probs of a fixed sequence are others than under the weights before, unless the files are the
// same. Without the weights before, as at the start and after a failure, there is nothing to compare.
func (e *Engine) verify(ctx context.Context, caps *Capabilities) error {
	before, dir := e.score, e.loaded.dir
	e.score = fingerprint{}
	scorer, ok := e.opt.Dialect.(Scorer)
	if !ok || !caps.Score {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	scores, err := scorer.Score(limited, e.opt.Server, scoreSequence(e.vocabulary(caps)), caps)
	if err != nil {
		return fmt.Errorf("asking for the log-probs of a fixed sequence: %w", err)
	}
	e.score = fingerprint{dir, scores}
	if before.scores == nil || before.dir == dir || !slices.Equal(before.scores, scores) {
		return nil
	}
	same, err := sameWeightFiles(before.dir, dir)
	if err != nil {
		return fmt.Errorf("the update has not changed the log-probs of a fixed sequence, and the weights cannot be compared: %w", err)
	}
	if !same {
		e.score = fingerprint{}
		return fmt.Errorf("%w: the update has not changed the log-probs of a fixed sequence, and the weights in %s and %s differ: it has not taken them", ErrLied, before.dir, dir)
	}
	return nil
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
