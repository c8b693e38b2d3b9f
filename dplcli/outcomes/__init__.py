"""What each job answers: frozen values, for programs to read and for reports to show.

``@keys`` says what JSON calls their parts (:mod:`dplcli.report.json` makes it), and what is said
of each part is what ``dpl schema`` tells a reader. A command loads its own answer alone.
"""
