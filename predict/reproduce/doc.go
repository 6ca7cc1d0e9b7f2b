// Package reproduce puts published measurements beside what the closed forms
// and the simulator say from the same inputs. A row that lacks an input says
// so, or what was assumed for it. A figure may be near to a printed one because
// an input was assumed for that, calibrated on it, or determines it. Its
// Quantity.Basis then says so, and its error is not summed up.
package reproduce
