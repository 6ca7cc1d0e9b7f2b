package record

import (
	"context"

	"github.com/headway-rl/headway/drive/cell"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/observe/steps"
)

// beside has held-out prompts played while the run goes on.
type beside struct {
	*cell.Evaluator
	ctx context.Context
	// end gives up the evaluation that is under way, and every later one.
	end context.CancelFunc
}

// openBeside prepares evaluations by players or workers, where the document asks for them. It returns the engines that
// the run is to use. The context ends evaluations.
func (r *Record) openBeside(ctx context.Context) []port.Engine {
	if r.Cfg.Evaluate.Slots == 0 || r.Environment == nil {
		return r.Engines
	}
	clock := r.Present()
	if clock == nil {
		clock = r.App.Clock(0)
	}
	evaluator, err := cell.NewEvaluator(ctx, cell.EvaluatorOptions{
		ShareOptions: cell.ShareOptions{Engines: r.Engines, Slots: r.EvaluationSlots(), Environment: r.Environment, Levels: r.Rules.Levels},
		Cells:        len(r.Cfg.Cells()) > 0, Attempts: r.Rules.MaxAttempts, Clock: clock, Logf: r.Logf,
	})
	if err != nil {
		r.Logf("evaluate.slots: %v", err)
		return r.Engines
	}
	r.beside = &beside{Evaluator: evaluator}
	r.beside.ctx, r.beside.end = context.WithCancel(ctx)
	return evaluator.Engines()
}

// Deal answers a cell that asks for held-out prompts.
func (r *Record) Deal(ev *cell.Event) cell.Deal {
	if r.beside == nil {
		return cell.Deal{Number: ev.Ask.Number}
	}
	return r.beside.Deal(ev.Origin.Cell, ev.Origin.Incarnation, *ev.Ask)
}

// evaluateBeside has the held-out prompts played that the document asks for.
func (r *Record) evaluateBeside(v loop.Version) (evaluation, error) {
	found, err := r.beside.Evaluate(r.beside.ctx, v, r.Cfg.Evaluate.Prompts)
	if err != nil {
		return evaluation{}, err
	}
	return evaluation{Accuracy: found.Accuracy, more: &steps.HeldOut{Reward: found.Reward, Scored: found.Scored, Infra: found.Infra, Data: found.Data,
		Oldest: found.Oldest, Newest: found.Newest}}, nil
}
