package report

import (
	"fmt"
	"time"
)

// Lasting writes a long time for people.
func Lasting(seconds float64) string {
	return (time.Duration(seconds) * time.Second).String()
}

// Bytes writes a number of bytes for people, in units of 1024.
func Bytes(n int64) string {
	value, unit := float64(n), 0
	for value >= 1024 && unit < 4 {
		value, unit = value/1024, unit+1
	}
	return fmt.Sprintf("%.3g %s", value, [...]string{"B", "KiB", "MiB", "GiB", "TiB"}[unit])
}
