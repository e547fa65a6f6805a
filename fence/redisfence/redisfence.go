// Package redisfence runs Redis scripts that refuse stale tokens.
package redisfence

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fence"
)

// guard is around the caller's script, which gets its own KEYS and ARGV. Tokens are compared as
// digits: a Lua number would round them.
//
//	KEYS: the script's, and the key of the highest token
//	ARGV: the script's, and the token
//	answer: the script's; or an error, STALE and the highest token
const guard = `local fence, token = table.remove(KEYS), table.remove(ARGV)
local seen = redis.call('GET', fence) or '0'
if #seen > #token or (#seen == #token and seen > token) then
  return redis.error_reply('STALE ' .. seen)
end
redis.call('SET', fence, token)
return (function()
%s
end)()
`

// A Script is a Lua script that is executed only if its token is not stale. It is safe for
// concurrent use.
type Script struct{ script *redis.Script }

// NewScript returns a script. Its code has the KEYS and ARGV that Run gets.
func NewScript(code string) *Script {
	return &Script{redis.NewScript(fmt.Sprintf(guard, code))}
}

// Run executes the script, unless the key fenceKey has seen a token higher than the given one: then
// the command's error is a [*fence.StaleError]. fenceKey belongs to this package. In a Redis
// Cluster it must be in the slot of the keys: "{order:7}:fence" goes with "{order:7}". It stays
// until it is deleted.
//
// A section that reads, decides and writes with several commands calls [Put] before it reads, and
// writes with scripts. A script that does all of that needs no Put.
func (s *Script) Run(ctx context.Context, c redis.Scripter, fenceKey string, token coord.Fence, keys []string, args ...any) *redis.Cmd {
	all := append(append(make([]string, 0, len(keys)+1), keys...), fenceKey)
	if token == 0 {
		cmd := redis.NewCmd(ctx)
		cmd.SetErr(errors.New("redisfence: the token is 0: pass the Fence of a lock"))
		return cmd
	}
	values := append(append(make([]any, 0, len(args)+1), args...), token.String())
	cmd := s.script.Run(ctx, c, all, values...)
	if err := cmd.Err(); err != nil {
		if seen, ok := strings.CutPrefix(err.Error(), "STALE "); ok {
			var highest coord.Fence
			if highest.UnmarshalText([]byte(seen)) == nil {
				cmd.SetErr(fence.Judge(fenceKey, token, highest))
			}
		}
	}
	return cmd
}

var nothing = NewScript("return 1")

// Put puts the token down: scripts of earlier holders are refused after that.
func Put(ctx context.Context, c redis.Scripter, fenceKey string, token coord.Fence) error {
	return nothing.Run(ctx, c, fenceKey, token, nil).Err()
}
