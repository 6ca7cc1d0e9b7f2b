// Package spans tells an OpenTelemetry collector of a share of a run's rollouts. The program binds it, so that
// nothing else is built with the libraries for that.
package spans
