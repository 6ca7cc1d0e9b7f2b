// Package pool hands out sandboxes of a driver: made at the first use, kept ready ahead of
// demand, bounded in number and in how many start at once, tried again when a start fails,
// refused at once while the backend is sick, and found and removed after a crash.
package pool
