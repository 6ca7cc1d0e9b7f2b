package cases

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/mat"
)

// rowNoise is how far two runs of one recipe are apart that differ in nothing but the release of their
// software, as a standard deviation of the logarithm: what no constant explains.
const rowNoise = 0.07

// noiseOf is that noise for a measured column. Parts of a step are noisier than the whole: what a
// framework counts among them differs, and a sync turns on links that nobody publishes.
func noiseOf(what string) float64 {
	switch what {
	case "step_s":
		return rowNoise
	case "sync_s":
		return 0.25
	}
	return 0.10
}

// observation is one measured figure of a row, and the part that predicts it.
type observation struct {
	of       *setup
	what     string
	measured float64
	part     func(Parts) float64
}

// observations are the measured figures of a row that a prediction has.
func (s *setup) observations() []observation {
	var out []observation
	add := func(what string, part func(Parts) float64) {
		if v := s.row.Measured[what]; v > 0 {
			out = append(out, observation{s, what, v, part})
		}
	}
	switch s.rules.kind {
	case kindTrain:
		add("train_s", func(p Parts) float64 { return p.Training })
	case kindSync:
		add("sync_s", func(p Parts) float64 { return p.Sync })
	case kindStep:
		add("step_s", func(p Parts) float64 { return p.Step })
		add("train_s", func(p Parts) float64 { return p.Training })
		if !s.rules.shared {
			add("sync_s", func(p Parts) float64 { return p.Sync })
		}
		if !s.rules.async {
			add("gen_s", func(p Parts) float64 { return p.Generation })
		}
	}
	return out
}

// Fitted are constants after rows. A family's are those of all runs times its own factors, for its
// software.
type Fitted struct {
	// Values are for a family that no row was of, Spreads what is uncertain of their logarithms.
	Values, Spreads [constants]float64
	// Families are those that rows were of.
	Families map[string]Family
	// Rows are those that the fit read.
	Rows []string
}

// Family is the constants of one family of runs.
type Family struct {
	Values, Spreads [constants]float64
}

// of returns the constants of a family. One that no row was of may differ from all.
func (f Fitted) of(family string) Family {
	if found, ok := f.Families[family]; ok {
		return found
	}
	out := Family{Values: f.Values, Spreads: f.Spreads}
	for i, c := range table {
		out.Spreads[i] = math.Hypot(f.Spreads[i], c.Differs)
	}
	return out
}

// unfitted are the priors alone.
func unfitted() Fitted {
	f := Fitted{Values: priors()}
	for i, c := range table {
		f.Spreads[i] = c.Spread
	}
	return f
}

// Fit narrows the priors by measured rows: the most likely logarithms of the constants and of each
// family's factors, by Gauss-Newton steps. A row that no prediction can be made of is left out.
func Fit(rows []Row) (Fitted, error) {
	p := problem{place: map[string]int{}}
	f := unfitted()
	for _, r := range completed(rows) {
		if r.rules().kind == kindServe {
			continue // no constant moves it
		}
		s, err := newSetup(r)
		if err != nil {
			continue
		}
		found := s.observations()
		if len(found) == 0 {
			continue
		}
		p.all, f.Rows = append(p.all, found...), append(f.Rows, r.ID)
		if _, ok := p.place[r.Family]; !ok {
			p.place[r.Family] = len(p.place) + 1
		}
	}
	if len(p.all) == 0 {
		return f, fmt.Errorf("no row has a measured figure that a prediction has: m_step_s, m_train_s, m_sync_s or m_gen_s")
	}
	at := make([]float64, p.size())
	var precision *mat.SymDense
	for range 15 {
		step, h, err := p.newton(at)
		if err != nil {
			return f, err
		}
		precision = h
		most := 0.0
		for i := range at {
			d := math.Max(math.Min(step.AtVec(i), 0.5), -0.5)
			at[i] += d
			most = math.Max(most, math.Abs(d))
		}
		if most < 0.003 {
			break
		}
	}
	var covariance mat.SymDense
	var factor mat.Cholesky
	if !factor.Factorize(precision) {
		return f, fmt.Errorf("the rows leave the constants undetermined")
	}
	if err := factor.InverseTo(&covariance); err != nil {
		return f, err
	}
	f.Values, f.Families = moved(priors(), at[:constants]), map[string]Family{}
	for i := range f.Spreads {
		f.Spreads[i] = math.Sqrt(covariance.At(i, i))
	}
	for name, k := range p.place {
		own := Family{Values: moved(f.Values, at[k*constants:(k+1)*constants])}
		for i := range own.Spreads {
			a, b := i, k*constants+i
			own.Spreads[i] = math.Sqrt(max(covariance.At(a, a)+covariance.At(b, b)+2*covariance.At(a, b), 0))
		}
		f.Families[name] = own
	}
	return f, nil
}

// problem is a fit: what was measured, and where each family's factors stand in the vector, from 1; the
// constants of all stand at 0.
type problem struct {
	all   []observation
	place map[string]int
}

func (p problem) size() int { return constants * (1 + len(p.place)) }

// outlier is the residual, in standard deviations, beyond which a row counts less: some runs have a
// cause that no constant is.
const outlier = 2

// newton is one step of the fit, and the precision there.
func (p problem) newton(at []float64) (*mat.VecDense, *mat.SymDense, error) {
	h, g := mat.NewSymDense(p.size(), nil), mat.NewVecDense(p.size(), nil)
	for i := range at {
		spread := table[i%constants].Spread
		if i >= constants {
			spread = table[i%constants].Differs
		}
		h.SetSym(i, i, 1/(spread*spread))
		g.SetVec(i, -at[i]/(spread*spread))
	}
	for k := 0; k < len(p.all); {
		s := p.all[k].of
		base := p.place[s.row.Family] * constants
		here, slopes := s.slopes(moved(moved(priors(), at[:constants]), at[base:base+constants]))
		for ; k < len(p.all) && p.all[k].of == s; k++ {
			o := p.all[k]
			left := math.Log(o.measured / o.part(here))
			noise := noiseOf(o.what)
			w := 1 / (noise * noise)
			if off := math.Abs(left) / noise; off > outlier {
				w *= outlier / off
			}
			var places []int
			var j []float64
			for i := range constants {
				if slope := math.Log(o.part(slopes[i])/o.part(here)) / slopeStep; slope != 0 {
					places, j = append(places, i, base+i), append(j, slope, slope)
				}
			}
			for a, at := range places {
				g.SetVec(at, g.AtVec(at)+w*j[a]*left)
				for b, to := range places {
					if to >= at {
						h.SetSym(at, to, h.At(at, to)+w*j[a]*j[b])
					}
				}
			}
		}
	}
	var step mat.VecDense
	if err := step.SolveVec(h, g); err != nil {
		return nil, nil, err
	}
	return &step, h, nil
}

// slopeStep is how far a logarithm is moved to see what follows.
const slopeStep = 0.03

// slopes are the parts here, and with each constant moved by slopeStep.
func (s *setup) slopes(c [constants]float64) (Parts, [constants]Parts) {
	var out [constants]Parts
	for i := range out {
		by := make([]float64, constants)
		by[i] = slopeStep
		out[i] = s.parts(moved(c, by))
	}
	return s.parts(c), out
}
