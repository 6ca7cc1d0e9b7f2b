// Command guest runs one world by a plan, has its history checked, and prints the findings. It is built with the
// world's overlay alone.
package main
