//go:build !unix

package machine

import "time"

// ProcessorTime is nil: this system does not tell.
var ProcessorTime func() time.Duration
