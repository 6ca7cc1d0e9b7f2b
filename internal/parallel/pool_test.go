package parallel

import (
	"context"
	"errors"
	"fmt"
	"testing"
)

func TestAll(t *testing.T) {
	last := 0
	results, _, err := All(context.Background(), 100, func(done, all int) {
		if done != last+1 || all != 100 {
			t.Errorf("progress %d of %d after %d", done, all, last)
		}
		last = done
	}, func(i int) (int, error) { return i * i, nil })
	if err != nil || last != 100 {
		t.Fatalf("%v after %d results", err, last)
	}
	for i, r := range results {
		if r != i*i {
			t.Errorf("result %d is %d", i, r)
		}
	}
	broken := errors.New("broken")
	_, i, err := All(context.Background(), 50, nil, func(i int) (int, error) {
		if i%20 == 7 {
			return 0, fmt.Errorf("%d: %w", i, broken)
		}
		return i, nil
	})
	if i != 7 || !errors.Is(err, broken) {
		t.Errorf("error of %d: %v, want the first in order, of 7", i, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, _, err := All(ctx, 5, nil, func(i int) (int, error) { return i, nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("a context that has ended: %v", err)
	}
	if results, _, err := All(context.Background(), 0, nil, func(i int) (int, error) { return i, nil }); len(results) != 0 || err != nil {
		t.Errorf("nothing to do: %v, %v", results, err)
	}
}
