-- By which claim an attempt failed. A task that was put back has no claim, and its generation alone
-- does not tell whose word put it back: a claim that was lost in a crash of the database had the
-- same one. NULL where the attempt was lost, or a program from before this wrote it.
ALTER TABLE {schema}.task_failures ADD COLUMN claim_id UUID;
