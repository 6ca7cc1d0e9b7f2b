//go:build !unix

package command

import "time"

// processor is unknown on this system.
var processor func() time.Duration
