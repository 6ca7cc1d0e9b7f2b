// Package watchdog says what a control plane waits for. It judges a view of the run: the last calls
// of each part, the content of the queue, and the wait of the loop. While nothing makes progress it
// names the missing part, the likeliest first. It has no clock of its own and starts nothing.
package watchdog
