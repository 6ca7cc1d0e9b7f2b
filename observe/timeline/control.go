package timeline

import "github.com/headway-rl/headway/loop"

// drawMove marks a setting that a controller moved, and shows where it stands from now on.
func (d *Drawing) drawMove(a *loop.Action) {
	e := d.out
	if a.Reason != loop.ReasonStart {
		e.instant(trainerProcess, moveTrack, "move", d.now)
		e.nameText(a.Setting.String())
		e.args()
		e.argFloat("to", a.Value)
		e.argText("reason", a.Reason.String())
		e.arg("version", int64(a.Version))
		e.close()
	}
	e.counter(trainerProcess, "setting "+a.Setting.String(), d.now)
	e.args()
	e.argFloat("value", a.Value)
	e.close()
}

// drawControl marks a change of a controller's state.
func (d *Drawing) drawControl(a *loop.Action) {
	e := d.out
	e.instant(trainerProcess, moveTrack, "target", d.now)
	e.nameText("target " + a.Control.String())
	e.args()
	e.argFloat("value", a.Value)
	if a.Control == loop.ControlUnreachable {
		e.argText("binding", a.Setting.String())
	}
	e.arg("version", int64(a.Version))
	e.close()
}
