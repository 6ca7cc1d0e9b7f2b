package run

import (
	"slices"

	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/drive/live"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/predict/experiment"
)

// plannedLosses are the losses of engines that a document plans.
func plannedLosses(cfg config.Config) (losses []live.EngineLoss) {
	for _, l := range cfg.Failures.EnginePlan {
		engine := slices.IndexFunc(cfg.Engines, func(e config.Engine) bool { return e.Name == l.Engine })
		losses = append(losses, live.EngineLoss{Engine: engine, AtNS: experiment.Nanoseconds(l.AtS), DownNS: experiment.Nanoseconds(l.DownS),
			AtStep: loop.Version(l.AtStep), BackStep: loop.Version(l.BackStep)})
	}
	return losses
}
