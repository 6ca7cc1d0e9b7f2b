package scenario

import (
	"context"
	"fmt"
	"time"

	"github.com/headway-rl/headway/cmd/lab/world/client"
	"github.com/headway-rl/headway/cmd/lab/world/machine"
)

// floats is the number of weights of the model.
func (w *World) floats() int { return max(w.plan.Trainer.Floats, 4) }

// rankHost is the name of a rank's host: the first has the trainer's own.
func rankHost(rank int) string {
	if rank == 0 {
		return "trainer"
	}
	return fmt.Sprint("trainer", rank)
}

func (w *World) serveTrainer(h *machine.Host, rank int) error {
	p := w.plan.Trainer
	o := client.TrainerOptions{
		Options: w.clientOptions(h, "trainer"), Name: "trainer", Step: time.Duration(p.StepMS) * time.Millisecond,
		Initial: []client.Tensor{client.Floats("lm_head.weight", make([]float32, w.floats())...)},
		Acks:    p.Acks, Back: p.Back, References: p.References, Ahead: p.Ahead, Channels: w.channels(),
	}
	if p.Ranks > 1 {
		o.Rank, o.WorldSize = rank, p.Ranks
		o.Gather = func(ctx context.Context, b *client.Batch) bool { return w.gather(ctx, rank, b) }
	}
	t, err := client.NewTrainer(o)
	if err != nil {
		return err
	}
	_, err = t.Run(context.Background())
	if err == nil && rank == 0 {
		w.ended.Store(true)
	}
	return err
}

// gatherMost is how long rank 0 waits for the others.
const gatherMost = 30 * time.Second

// gather stands for the network between the ranks, on which there are no faults. A rank above 0 says that its share of a
// batch is done, and goes on. Rank 0 waits until all have. It waits no more once the lease is lost: its publish is
// refused then.
func (w *World) gather(ctx context.Context, rank int, b *client.Batch) bool {
	share := func(rank int) [3]int64 { return [3]int64{b.Lease, b.Version, int64(rank)} }
	w.mu.Lock()
	w.shares[share(rank)] = b.Attempt
	w.mu.Unlock()
	if rank > 0 {
		return true
	}
	done := func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		for other := 1; other < w.plan.Trainer.Ranks; other++ {
			if w.shares[share(other)] < b.Attempt {
				return false
			}
		}
		return true
	}
	for end := time.Now().Add(gatherMost); !done(); {
		switch {
		case b.Lost():
			return true
		case ctx.Err() != nil || time.Now().After(end):
			return false
		}
		time.Sleep(10 * time.Millisecond)
	}
	return true
}
