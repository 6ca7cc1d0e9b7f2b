package client

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// posting makes calls of a transport.
type posting struct{ transport *Transport }

func newPost(t *testing.T, common Options) posting {
	t.Helper()
	transport, err := NewTransport(common)
	if err != nil {
		t.Fatal(err)
	}
	return posting{transport}
}

func (p posting) state() any { return nil }
func (p posting) close()     { p.transport.Close() }

func (p posting) do(ctx context.Context, one step) (any, error) {
	c := call{path: one.Path, message: one.JSON, limit: seconds(one.TimeoutS)}
	if one.PatienceS != nil {
		patience := seconds(*one.PatienceS)
		c.patience = &patience
	}
	found := map[string]any{}
	switch one.Do {
	case "post":
		return &found, p.transport.post(ctx, c, &found)
	case "get":
		return &found, p.transport.get(ctx, c, &found)
	case "stop":
		time.AfterFunc(seconds(one.S), p.transport.stopped.set)
		return nil, nil
	}
	return nil, fmt.Errorf("no call %q", one.Do)
}

// training makes calls of a trainer.
type training struct {
	trainer   *Trainer
	batch     *Batch
	directory string
	t         *testing.T
}

func newTraining(t *testing.T, common Options, said options, directory string) *training {
	t.Helper()
	trainer, err := NewTrainer(TrainerOptions{
		Options: common, Name: said.Name, Rank: said.Rank, WorldSize: said.WorldSize, StepMost: seconds(said.StepMostS), References: said.References,
	})
	if err != nil {
		t.Fatal(err)
	}
	return &training{trainer: trainer, directory: directory, t: t}
}

func (a *training) close() { a.trainer.Close() }

func (a *training) state() any {
	t := a.trainer
	return map[string]any{"action": t.Action, "version": t.Version, "newest": t.Newest, "next": t.Next, "stored": t.Stored}
}

func (a *training) do(ctx context.Context, one step) (any, error) {
	t := a.trainer
	switch one.Do {
	case "connect":
		return nil, t.Connect(ctx, given(one.Version, -1))
	case "load":
		found, err := t.Load(ctx)
		return values(found), err
	case "lease", "loop":
		found, err := t.Lease(ctx)
		return a.leased(found), err
	case "validation":
		found, err := t.Validation(ctx, one.Prompts)
		return a.leased(found), err
	case "leave":
		t.giveBack(ctx)
		return nil, nil
	case "stamp_forward":
		a.batch.StampForward()
		return nil, nil
	case "stamp_step":
		a.batch.StampStep()
		return nil, nil
	case "lost":
		return a.batch.Lost(), nil
	case "part":
		found, err := a.batch.Part(ctx, one.Kind, one.Name)
		return string(found), err
	case "nack":
		return nil, t.Nack(ctx, a.batch, one.Reason, one.Failed)
	case "ack":
		return t.Ack(ctx, a.batch)
	case "run":
		t.options.Step = seconds(one.S)
		return t.Run(ctx)
	}
	return a.publish(ctx, one)
}

// publish makes the calls that make a version.
func (a *training) publish(ctx context.Context, one step) (any, error) {
	batch := a.batch
	if one.NoBatch {
		batch = nil
	}
	switch one.Do {
	case "publish":
		return a.trainer.Publish(ctx, batch, tensorsOf(one.Model), tensorsOf(one.Optimizer))
	case "restore":
		return a.trainer.Restore(ctx, given(one.Version, 0), tensorsOf(one.Model), tensorsOf(one.Optimizer))
	case "directory":
		for name, size := range one.Files {
			if err := os.WriteFile(filepath.Join(a.directory, name), make([]byte, size), 0o600); err != nil {
				a.t.Error(err)
			}
		}
		return a.trainer.PublishDirectory(ctx, batch, a.directory)
	}
	return nil, fmt.Errorf("no call %q", one.Do)
}

func (a *training) leased(found *Batch) any {
	if found == nil {
		return nil
	}
	a.batch = found
	return map[string]any{"lease": found.Lease, "attempt": found.Attempt, "version": found.Version, "kind": found.Kind}
}

func given(said *int64, otherwise int64) int64 {
	if said == nil {
		return otherwise
	}
	return *said
}

// values are the numbers of tensors by name.
func values(tensors []Tensor) map[string]any {
	found := map[string]any{}
	for _, tensor := range tensors {
		list := make([]float32, tensor.Shape[0])
		if err := numbers(tensor, &list); err == nil {
			found[tensor.Name] = list
		}
	}
	return found
}

// working plays rollouts.
type working struct{ worker *Worker }

func newWorking(t *testing.T, common Options, said options) *working {
	t.Helper()
	plays := map[string]Play{}
	for name, moves := range said.Environments {
		plays[name] = playing(moves)
	}
	worker, err := NewWorker(WorkerOptions{
		Options: common, Name: said.Name, Environments: plays, Concurrency: said.Concurrency, Grace: seconds(said.GraceS),
	})
	if err != nil {
		t.Fatal(err)
	}
	return &working{worker}
}

func (w *working) close() {}

func (w *working) state() any {
	counts := w.worker.Counts()
	return map[string]any{"finished": counts.Finished, "failed": counts.Failed, "given_up": counts.GivenUp}
}

func (w *working) do(ctx context.Context, one step) (any, error) {
	if one.StopS != nil {
		time.AfterFunc(seconds(*one.StopS), w.worker.Stop)
	}
	return w.worker.Run(ctx)
}

// playing makes an environment of moves. A question is the only move of its play.
func playing(moves []move) Play {
	if one := moves[0]; one.Ask != "" {
		return SingleTurn(func(*Task) Question {
			return Question{Text: one.Ask, Expected: "4", Verify: func(text string, _ []int32) (Result, error) {
				switch one.Verdict {
				case "crash":
					return Result{}, fmt.Errorf("it crashes")
				case "data":
					return Result{}, &Failure{"data", "no answer is known"}
				case "protocol":
					return Result{Reward: 2e39}, nil
				}
				return Result{Reward: float64(len(text)), Exact: true}, nil
			}}
		}, one.Most)
	}
	return func(ctx context.Context, task *Task) (Result, error) {
		for _, one := range moves {
			var err error
			switch {
			case one.SleepS > 0:
				err = rest(ctx, seconds(one.SleepS))
			case one.Chat != "":
				_, err = task.Chat(ctx, []Message{{"user", one.Chat}}, one.Most)
			case one.Tokens != nil:
				_, err = task.Tokens(ctx, one.Tokens, one.Most)
			case one.Fail == "timeout":
				err = os.ErrDeadlineExceeded
			case one.Fail == "raise":
				err = fmt.Errorf("it fails")
			case one.Fail != "":
				err = &Failure{one.Fail, "it fails"}
			default:
				return Result{Reward: *one.Reward}, nil
			}
			if err != nil {
				return Result{}, err
			}
		}
		return Result{}, fmt.Errorf("a play without a reward")
	}
}
