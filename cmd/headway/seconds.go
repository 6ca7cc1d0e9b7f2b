package main

import (
	"time"
)

func lasting(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
