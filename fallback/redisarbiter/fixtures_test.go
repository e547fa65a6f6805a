package redisarbiter_test

import "github.com/holdfast-go/holdfast/fallback"

func row(session string, request uint64, epoch, seq uint32) fallback.Row {
	return fallback.Row{Identity: id(session, request), Token: fallback.MakeToken(epoch, seq)}
}
