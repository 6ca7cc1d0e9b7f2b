package loop

// ControlStatus describes the controller for people, nil without one. It allocates.
func (l *Loop) ControlStatus() *ControlStatus {
	c, ctl := l.s.Control, l.cfg.Control
	if c == nil {
		return nil
	}
	w := l.window(ctl.Window)
	st := &ControlStatus{State: c.State.String(), MeasuredMean: w.mean(), MeasuredShare: -1, HeldSteps: c.Held, Steps: c.Judged, Moves: c.Moves}
	if ctl.Share > 0 {
		st.MeasuredShare = w.share()
	}
	last := l.window(1)
	st.HeldBatches, st.LastMean, st.LastShare = c.HeldBatches, last.mean(), -1
	if ctl.Share > 0 {
		st.LastShare = last.share()
	}
	if c.State == ControlUnreachable {
		st.Nearest, st.Binding = c.Nearest, c.Binding.String()
	}
	for set := range settingCount {
		if r := ctl.Ranges[set]; r.Moves() {
			st.Settings = append(st.Settings, SettingStatus{Name: set.String(), Value: c.At[set], Least: r.Least, Most: r.Most, Why: c.Why[set].String()})
		}
	}
	return st
}
