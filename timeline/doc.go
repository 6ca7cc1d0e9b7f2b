// Package timeline draws the events of a run as the spans that trace viewers
// read: a track for every engine's slots, one for the trainer, one for weight
// syncs, counters for the queue and the versions.
package timeline
