// Package fence makes the token of a lock count where the data is: a resource refuses the late
// write of a holder that was stopped for longer than its lease. docs/fencing.md shows the late
// write and how it is stopped.
//
// For SQL databases, [Table] keeps the highest token of each key in a table of its own. [Column]
// keeps it in a column of the caller's rows. Both have the same methods:
//
//	var fences = fence.Table{Dialect: fence.Postgres}
//
//	err := fences.DoTx(ctx, locks, db, "sku/"+sku, func(ctx context.Context, tx *sql.Tx) error {
//		// read, decide, write
//	})
//
// DoTx locks, begins, checks, calls the function and commits. Check is its statement alone, for
// transactions that something else begins. Put is for sections that read outside of the transaction
// that writes. Package pgxfence has the same for pgx without database/sql. [Inbox] executes a
// message once, in the transaction that does its work.
//
// Elsewhere: package redisfence wraps scripts of Redis; [Transport] and [Require] take the token
// through HTTP; [Memory] is for a resource in this process, [UpdateFile] for a file; [Update] for
// an object of a store with conditional writes, such as a [Bucket]; [Judge] for any other.
package fence
