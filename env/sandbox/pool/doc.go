// Package pool hands out sandboxes of a driver. They are made at the first use, kept ready ahead of
// demand, and bounded in number and in how many start at once. A start that fails is tried again, and
// leases are refused at once while the backend is sick. Boxes are found and removed after a crash.
package pool
