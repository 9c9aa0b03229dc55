# SPDX-License-Identifier: MIT
"""Databases that a stranger made: views, triggers, computed columns, endless queries, locks.

    attack_databases.py REPRISE SOURCE_DIR
"""
import json
import os
import sqlite3

from arena import Arena, Trace, main, model_steps, run
import make_nsys

ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"
KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"


class Databases(Arena):
    def database(self, *changes):
        path = self.path("d.sqlite")
        make_nsys.write(model_steps(Trace(python=False)), path)
        database = sqlite3.connect(path)
        for change in changes:
            database.execute(change)
        database.commit()
        database.close()
        return path

    def advise(self, path):
        return run("advise", "--json", path)

    def test_as_it_is(self):
        self.assertEqual(json.loads(self.advise(self.database()).stdout)["kernels"], 40)

    def test_a_view_instead_of_a_table(self):
        view = f"CREATE VIEW {KERNEL} AS {ENDLESS} SELECT i AS start, i AS end, 0 AS deviceId, " \
               "7 AS streamId, 1 AS correlationId, 1 AS demangledName FROM n"
        path = self.database(f"DROP TABLE {KERNEL}", view)
        self.refused(self.advise(path), KERNEL, "is no plain table")
        path = self.path("d.sqlite")
        os.unlink(path)
        path = self.database("ALTER TABLE StringIds RENAME TO S",
                             f"CREATE VIEW StringIds AS {ENDLESS} SELECT i AS id, 'x' AS value "
                             "FROM n")
        self.refused(self.advise(path), "StringIds", "is no plain table")

    def test_a_virtual_table(self):
        """An rtree stands for all; the shadow tables behind one are tables."""
        path = self.database("ALTER TABLE TARGET_INFO_GPU RENAME TO T",
                             "CREATE VIRTUAL TABLE TARGET_INFO_GPU USING rtree(name, a, b)")
        self.refused(self.advise(path), "TARGET_INFO_GPU", "is no plain table")

    def test_a_computed_column(self):
        path = self.database("ALTER TABLE StringIds RENAME TO S",
                             "CREATE TABLE StringIds (id INTEGER PRIMARY KEY, v TEXT, value TEXT "
                             "GENERATED ALWAYS AS (hex(zeroblob(400000000))) VIRTUAL)",
                             "INSERT INTO StringIds (id, v) SELECT id, value FROM S")
        self.refused(self.advise(path), "StringIds", "is no plain table")

    def test_names_that_only_look_alike(self):
        """Triggers run on writing alone, and other tables are not looked at."""
        path = self.database(f"CREATE VIEW other AS {ENDLESS} SELECT i FROM n",
                             f"CREATE TRIGGER t AFTER INSERT ON {KERNEL} BEGIN SELECT 1; END")
        self.assertEqual(json.loads(self.advise(path).stdout)["kernels"], 40)

    def test_steps_are_bounded_by_the_file(self):
        """Every call has 60,000 names: some ten million rows come of a file of 1 MB."""
        path = self.database("ALTER TABLE StringIds RENAME TO S",
                             "CREATE TABLE StringIds (id INTEGER, value TEXT)",
                             "INSERT INTO StringIds WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL "
                             "SELECT i + 1 FROM n WHERE i < 60000) SELECT 1, 'x' FROM n",
                             "UPDATE CUPTI_ACTIVITY_KIND_RUNTIME SET nameId = 1")
        self.refused(self.advise(path), "more than", "steps")

    def test_a_locked_database(self):
        path = self.database()
        holder = sqlite3.connect(path, isolation_level=None)
        holder.execute("PRAGMA locking_mode = EXCLUSIVE")
        holder.execute("BEGIN EXCLUSIVE")
        self.refused(self.advise(path), "another program", "lock")
        holder.close()

    def test_a_column_that_is_missing(self):
        path = self.database(f"ALTER TABLE {KERNEL} RENAME COLUMN streamId TO other")
        self.refused(self.advise(path), "streamId")

    def test_times_that_are_none(self):
        change = ("CREATE TABLE K AS SELECT * FROM " + KERNEL, "DROP TABLE " + KERNEL,
                  "ALTER TABLE K RENAME TO " + KERNEL)
        for value in ("NULL", "'x'", "9e999", "1.5", "zeroblob(8)"):
            for field in ("start", "end"):
                with self.subTest(value=value, field=field):
                    if os.path.exists(self.path("d.sqlite")):
                        os.unlink(self.path("d.sqlite"))
                    path = self.database(*change, f"UPDATE {KERNEL} SET {field} = {value} "
                                         "WHERE rowid % 41 = 0")
                    answer = json.loads(self.advise(path).stdout)
                    self.assertEqual(answer["events_left_out"], 3)
                    path = self.path("d.sqlite")
                    database = sqlite3.connect(path)
                    database.execute(f"UPDATE {KERNEL} SET {field} = {value}")
                    database.commit()
                    database.close()
                    self.refused(self.advise(path), "times")

    def test_damage_is_an_error(self):
        path = self.database()
        with open(path, "rb") as file:
            whole = file.read()
        seen = set()
        for page in range(1, len(whole) // 4096):
            spoiled = whole[:page * 4096] + b"\xff" * 4096 + whole[(page + 1) * 4096:]
            result = self.advise(self.write("bad.sqlite", spoiled))
            if result.returncode == 2:
                seen.add("refused")
                self.assertIn(b"SQLite database: ", result.stderr)
            else:
                answer = json.loads(result.stdout)  # a page that the answer needs no word of
                self.assertEqual(answer["kernels"], 40)
        self.assertIn("refused", seen)


if __name__ == "__main__":
    main()
