package plane

import (
	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/drive/live"
	"github.com/headway-rl/headway/loop"
	"math"
	"strings"
)

// RequestSetting implements api.Settings.
func (p *Plane) RequestSetting(name string, value float64) error {
	setting, err := loop.ParseSetting(name)
	if err != nil {
		return protocol.Refuse(protocol.CodeNotFound, "%s", strings.TrimPrefix(err.Error(), "loop: "))
	}
	within := p.Rules.Control.Ranges[setting]
	if !within.Moves() {
		return protocol.Refuse(protocol.CodeNotFound, "%s does not move in this run: control.limits and fleet in its document say what does", name)
	}
	if !(value >= within.Least && value <= within.Most) {
		return protocol.Refuse(protocol.CodeInvalid, "%s may be from %g to %g in this run, and %g is not", name, within.Least, within.Most, value)
	}
	if counts := setting != loop.SettingHold && setting != loop.SettingLive; counts && value != math.Trunc(value) {
		return protocol.Refuse(protocol.CodeInvalid, "%s counts something, and %g is not whole", name, value)
	}
	if state := p.currentState(); state != StateRunning {
		return protocol.Refuse(protocol.CodeUnavailable, "the run is %s: nothing moves", state)
	}
	p.withRuntime(func(r *live.Runtime) { r.Request(setting, value) })
	p.logf("asked from outside: %s to %g", name, value)
	return nil
}
