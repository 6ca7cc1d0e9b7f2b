package theory

import "math"

// EffectiveShare returns the effective sample size over the number of samples
// where log importance weights are normal with the given variance. It is e^{−Var
// log w}, the limit of (Σw)²/(N·Σw²) for many samples. Beyond a variance of about
// 1 a batch has too few samples for the limit, which is then too low.
func EffectiveShare(variance float64) float64 { return math.Exp(-variance) }
