package transformer

import (
	"errors"
	"fmt"
	"math"
)

// Adam is the optimizer of Kingma and Ba (2015), with bias correction. Its
// state is two flat vectors beside the parameters, and a step count.
type Adam struct {
	LearningRate float32
	Beta1        float32 // decay of the mean; 0 means 0.9
	Beta2        float32 // decay of the uncentred variance; 0 means 0.99
	Epsilon      float32 // 0 means 1e-8
	ClipNorm     float32 // the gradient is scaled down to this Euclidean norm; 0 means never

	mean, variance []float32
	steps          int
}

// NewAdam returns an optimizer for vectors of n elements, before its first
// step.
func NewAdam(n int, learningRate float32) *Adam {
	return &Adam{LearningRate: learningRate, mean: make([]float32, n), variance: make([]float32, n)}
}

// State is the running mean and variance, not copies, and the steps taken.
func (a *Adam) State() (mean, variance []float32, steps int) { return a.mean, a.variance, a.steps }

// Restore sets the state, copying it, as saved from State.
func (a *Adam) Restore(mean, variance []float32, steps int) error {
	if len(mean) != len(a.mean) || len(variance) != len(a.variance) || steps < 0 {
		return fmt.Errorf("transformer: optimizer state of %d and %d elements at step %d; the model has %d elements",
			len(mean), len(variance), steps, len(a.mean))
	}
	copy(a.mean, mean)
	copy(a.variance, variance)
	a.steps = steps
	return nil
}

// ErrNotFinite is wrapped by the error of a step whose gradient has a number that is none.
var ErrNotFinite = errors.New("the gradient's norm is not finite")

// Step writes into next the parameters after one step from current down grad,
// and returns the gradient's norm before clipping. next may be current. A
// gradient that is not finite is an error, ErrNotFinite, and changes nothing.
func (a *Adam) Step(next, current *Parameters, grad []float32) (norm float64, err error) {
	if len(grad) != len(a.mean) || len(current.data) != len(a.mean) || len(next.data) != len(a.mean) {
		return 0, fmt.Errorf("transformer: optimizer for %d elements got a gradient of %d and parameters of %d and %d",
			len(a.mean), len(grad), len(current.data), len(next.data))
	}
	var square float64
	for _, g := range grad {
		square += float64(g) * float64(g)
	}
	norm = math.Sqrt(square)
	if math.IsNaN(norm) || math.IsInf(norm, 0) {
		return norm, fmt.Errorf("transformer: %w but %v; the step is refused", ErrNotFinite, norm)
	}
	a.steps++
	scale := float32(1)
	if a.ClipNorm > 0 && norm > float64(a.ClipNorm) {
		scale = a.ClipNorm / float32(norm)
	}
	beta1, beta2 := orDefault(a.Beta1, 0.9), orDefault(a.Beta2, 0.99)
	epsilon := orDefault(a.Epsilon, 1e-8)
	rate := a.LearningRate / float32(1-math.Pow(float64(beta1), float64(a.steps)))
	correction := float32(1 / math.Sqrt(1-math.Pow(float64(beta2), float64(a.steps))))
	mean, variance := a.mean[:len(grad)], a.variance[:len(grad)]
	from, to := current.data[:len(grad)], next.data[:len(grad)]
	for i, g := range grad {
		g *= scale
		m := mean[i] + (1-beta1)*(g-mean[i])
		v := variance[i] + (1-beta2)*(g*g-variance[i])
		mean[i], variance[i] = m, v
		to[i] = from[i] - rate*m/(sqrt32(v)*correction+epsilon)
	}
	return norm, nil
}

func sqrt32(x float32) float32 { return float32(math.Sqrt(float64(x))) }

func orDefault(v, otherwise float32) float32 {
	if v == 0 {
		return otherwise
	}
	return v
}
