package config

import (
	"time"
)

// Seconds is a number of seconds, as the keys that end in _s have them, as a duration.
func Seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
