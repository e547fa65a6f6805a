//go:build linux

package main

import "context"

func delay(ctx context.Context, s *storm) error { return nil }
