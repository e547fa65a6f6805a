package main

import (
	"context"
	"errors"
	"net/url"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/internal/dbserver"
)

// postgres is a client of a PostgreSQL server.
type postgres struct{ pool *pgxpool.Pool }

func openPostgres(p place, conns int) (database, error) {
	cfg, err := pgxpool.ParseConfig(p.Postgres)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = int32(conns)
	cfg.ConnConfig.RuntimeParams["search_path"] = p.Schema
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg) // it does not connect yet
	if err != nil {
		return nil, err
	}
	return postgres{pool}, nil
}

func (p postgres) Close() { p.pool.Close() }

func (p postgres) Query(ctx context.Context, text string, args ...any) ([][]any, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	rows, err := p.pool.Query(context.WithoutCancel(ctx), text, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) ([]any, error) { return row.Values() })
}

func (p postgres) Exec(ctx context.Context, text string, args ...any) (int64, error) {
	if ctx.Err() != nil {
		return 0, context.Cause(ctx)
	}
	tag, err := p.pool.Exec(context.WithoutCancel(ctx), text, args...)
	return tag.RowsAffected(), err
}

// createSchema makes room for a run's tables, and returns the server's name for itself.
func (p place) createSchema(ctx context.Context) (name string, err error) {
	conn, err := pgx.Connect(ctx, p.Postgres)
	if err != nil {
		return "", err
	}
	defer conn.Close(ctx)
	if err := conn.QueryRow(ctx, `SELECT 'PostgreSQL ' || split_part(current_setting('server_version'), ' ', 1)`).Scan(&name); err != nil {
		return "", err
	}
	_, err = conn.Exec(ctx, `CREATE SCHEMA `+p.Schema)
	return name, err
}

func (p place) dropSchema(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, p.Postgres)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, `DROP SCHEMA `+p.Schema+` CASCADE`)
	return err
}

var errNoPostgres = errors.New("PostgreSQL is not installed (apt install postgresql)")

var postgresScript = dbserver.Script{
	Start: `
"$1/initdb" --pgdata data --username inventory --auth trust --no-sync >&2 || exit 1
"$1/postgres" -D data -k "$2" -c listen_addresses= >&2 &`,
	End:     `kill -QUIT $!`,
	Account: "postgres",
}

// startPostgres starts a server with its defaults, with a socket in a directory of its own. It
// returns how to connect. When this process ends, however it does, so does the server, and its data
// with it.
func startPostgres(ctx context.Context) (dsn string, stop func() error, err error) {
	bin, err := dbserver.FindPostgres()
	if err != nil {
		return "", nil, errNoPostgres
	}
	server, err := dbserver.Start(postgresScript, bin, "inventory-")
	if err != nil {
		return "", nil, err
	}
	dsn = "postgres://inventory@/postgres?host=" + url.QueryEscape(server.Dir)
	err = server.Await(ctx, func(ctx context.Context) error {
		conn, err := pgx.Connect(ctx, dsn)
		if err != nil {
			return err
		}
		return conn.Close(ctx)
	})
	if err != nil {
		return "", nil, err
	}
	return dsn, server.Stop, nil
}
