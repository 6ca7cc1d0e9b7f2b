package theory

import (
	"math"
	"math/cmplx"

	"gonum.org/v1/gonum/dsp/fourier"

	"github.com/headway-rl/headway/loop/workload"
)

// Dispersion is the variability of arrivals, by the length of a window. It is the
// variance of the number of groups that become ready within the window over its
// mean. It is 1 for short windows, where groups of many slots arrive like a
// Poisson process. For long ones it falls to cv²/S, or rises where lengths vary
// more than an exponential's. The coefficient of variation of one rollout is cv.
// Over a long window slots can only make so much.
//
// Derived, nothing fitted (docs/theory-corrections.md): groups start whenever S
// rollouts have ended, so that a group start answers to the rollouts before it.
// Let f and g be the transforms of the time of one rollout and of a group's
// longest. L has the former's values, M the latter's. The spectrum of ready
// groups over their rate is
//
//	E| g·Σᵢ(e^{−iωLᵢ} − f)/(S(1 − f)) + e^{−iωM} − g |²
//
// which is the renewal process of the slots for S = 1. Valid in the limit of
// many slots, for independent siblings and work-conserving slots; for siblings
// that correlate it is an approximation.
//
// The zero Dispersion is 1 everywhere. Immutable.
type Dispersion struct {
	step    float64   // of the windows tabulated, in mean rollout times
	index   []float64 // at (i+1)·step
	longRun float64   // cv²/S
}

// dispersionCells is the resolution of the transforms, a power of two.
const dispersionCells = 4096

// dispersionReach is the longest group time resolved, in mean rollout times;
// what is longer counts as that long.
const dispersionReach = 48

// NewDispersion tabulates it for rollout times of mean 1 and groups of s.
func NewDispersion(rollout workload.Distribution, s int) Dispersion {
	longest, _ := rollout.At(rollout.Len() - 1)
	longest = min(longest, dispersionReach)
	// Twice the longest, so that lags do not wrap around.
	step := max(2.2*longest+1, 8) / dispersionCells
	one := onLattice(rollout, step)
	whole, last := siblings(one, s)
	spectrum := arrivalSpectrum(one, whole, last, s)
	return dispersionOf(spectrum, step)
}

// onLattice puts a distribution on multiples of step, each value's mass shared
// between its neighbours so that means stay.
func onLattice(d workload.Distribution, step float64) []float64 {
	mass := make([]float64, dispersionCells)
	for i := range d.Len() {
		value, p := d.At(i)
		at := min(value, dispersionReach) / step
		cell := min(int(at), dispersionCells-2)
		share := min(at-float64(cell), 1)
		mass[cell] += p * (1 - share)
		mass[cell+1] += p * share
	}
	return mass
}

// siblings returns the mass of the longest of s, and the step of the
// distribution function of the longest of the other s−1 at every point.
func siblings(one []float64, s int) (whole, last []float64) {
	whole, last = make([]float64, len(one)), make([]float64, len(one))
	below, sum := 0.0, 0.0
	others := 0.0
	for i, p := range one {
		sum = min(sum+p, 1)
		all := math.Pow(sum, float64(s))
		rest := all
		if sum > 0 {
			rest = all / sum
		}
		whole[i], last[i] = all-below, rest-others
		below, others = all, rest
	}
	return whole, last
}

// lag returns the transform of M − L over the siblings, Σᵢ E[e^{−iω(M−Lᵢ)}]: 0
// where all others are at most Lᵢ, else what the longest of the others exceeds it by.
func lag(fft *fourier.CmplxFFT, one, last []float64, s int) []complex128 {
	a, b := transform(fft, one), transform(fft, last)
	for i := range a {
		a[i] = b[i] * cmplx.Conj(a[i])
	}
	ahead := fft.Sequence(nil, a) // at lag k: P(L = l, longest other = l+k)
	n := float64(len(ahead))
	differences := make([]float64, len(one))
	sum, together := 0.0, 0.0
	for i, p := range one {
		sum += last[i]
		together += p * sum // the longest of the others is at most this one
		if i > 0 && i < len(one)/2 {
			differences[i] = max(real(ahead[i])/n, 0)
		}
	}
	differences[0] = together
	for i := range differences {
		differences[i] *= float64(s)
	}
	return transform(fft, differences)
}

// transform is Σ p_k e^{−iωk}.
func transform(fft *fourier.CmplxFFT, p []float64) []complex128 {
	values := make([]complex128, len(p))
	for i, v := range p {
		values[i] = complex(v, 0)
	}
	return fft.Coefficients(nil, values)
}

// arrivalSpectrum is the spectrum of ready groups over their rate.
func arrivalSpectrum(one, whole, last []float64, s int) []float64 {
	fft := fourier.NewCmplxFFT(len(one))
	f, g := transform(fft, one), transform(fft, whole)
	ahead := lag(fft, one, last, s)
	spectrum := make([]float64, len(f))
	size := complex(float64(s), 0)
	for i := 1; i < len(f); i++ {
		gap := 1 - f[i]
		if cmplx.Abs(gap) < 1e-3 {
			gap = 1e-3 // nearly equal times resonate without end
		}
		answer := g[i] / (size * gap)
		square := func(z complex128) float64 { return real(z)*real(z) + imag(z)*imag(z) }
		cross := cmplx.Conj(ahead[i]) - size*f[i]*cmplx.Conj(g[i])
		spectrum[i] = square(answer)*float64(s)*(1-square(f[i])) + 1 - square(g[i]) + 2*real(answer*cross)
	}
	mean, moment := 0.0, 0.0
	for i, p := range one {
		mean += p * float64(i)
		moment += p * float64(i) * float64(i)
	}
	spectrum[0] = (moment/(mean*mean) - 1) / float64(s)
	return spectrum
}

// dispersionOf sums the covariances that belong to a spectrum.
func dispersionOf(spectrum []float64, step float64) Dispersion {
	fft := fourier.NewCmplxFFT(len(spectrum))
	values := make([]complex128, len(spectrum))
	for i, v := range spectrum {
		values[i] = complex(v, 0)
	}
	covariance := fft.Sequence(nil, values)
	n := float64(len(spectrum))
	d := Dispersion{step: step, index: make([]float64, len(spectrum)/2), longRun: spectrum[0]}
	sum, moment := 0.0, 0.0
	for i := range d.index {
		// Windows of i+1 cells: cov₀ + 2Σ(1 − k/(i+1))·cov_k.
		if i > 0 {
			c := real(covariance[i]) / n
			sum += c
			moment += c * float64(i)
		}
		d.index[i] = max(real(covariance[0])/n+2*(sum-moment/float64(i+1)), 0)
	}
	return d
}

// At returns the index for a window in mean rollout times.
func (d Dispersion) At(window float64) float64 {
	if len(d.index) == 0 || !(window > d.step) {
		return 1
	}
	at := window/d.step - 1
	if last := len(d.index) - 1; at >= float64(last) {
		// Beyond the table what is left of the difference is a constant variance.
		return d.longRun + (d.index[last]-d.longRun)*float64(last)/at
	}
	i := int(at)
	return d.index[i] + (at-float64(i))*(d.index[i+1]-d.index[i])
}
