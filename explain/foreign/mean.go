package foreign

// Mean returns a figure's mean over the steps that have it, weighed by how many train steps
// each stands for, and how many those are. Origin and From are the last step's.
func (l *Log) Mean(n Notion) (Figure, int64) {
	var out Figure
	sum, steps := 0.0, int64(0)
	for i := range l.Series {
		f := *n.At(&l.Series[i])
		if !f.Known() {
			continue
		}
		weight := max(l.Series[i].Steps, 1)
		sum += f.Value * float64(weight)
		steps += weight
		out = f
	}
	if steps == 0 {
		return Figure{}, 0
	}
	out.Value = sum / float64(steps)
	return out, steps
}
