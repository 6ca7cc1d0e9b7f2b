package study

import (
	"crypto/sha256"
	"fmt"

	"github.com/headway-rl/headway/loop"
)

// groundEdition is raised where the oracle's search or an arm beside the controller changes, or how they are judged.
const groundEdition = 3

// groundSteps is the length of the simulations that tell one ground from another.
const groundSteps = 40

// ControlGround names the ground of all but the controller: how it is searched and judged. It
// includes the outcome of fixed settings, AReaL's bound and AIMD under every drift. Programs that
// agree in it agree in all arms but the controller.
func ControlGround() (string, error) {
	digest := sha256.New()
	at := full()
	at[loop.SettingSlots], at[loop.SettingLive], at[loop.SettingHold], at[loop.SettingQueue] = 100, 25.5, 0.1, 12
	for _, w := range ControlWorlds {
		for _, d := range ControlDrifts {
			if d.Calls && w.Crowding > 0 {
				continue
			}
			c := course{begin: groundSteps, settle: 1, frozen: true, level: 0.5}
			for _, a := range []arm{fixedArm(at), boundedArm(2), aimdArm(residentTokens())} {
				series, err := controlTrial{w, d, c, planSeed, a, true}.run()
				if err != nil {
					return "", err
				}
				fmt.Fprintln(digest, w, d.Name, series.lags, series.endNS, series.tokens, series.values)
			}
		}
	}
	return fmt.Sprintf("edition %d, ground %x", groundEdition, digest.Sum(nil)[:8]), nil
}
