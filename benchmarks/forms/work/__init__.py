"""The launches of each file of kernels, and all forms by name."""

from benchmarks.forms.form import Form as Form
from benchmarks.forms.form import union
from benchmarks.forms.work import quantised, scans, serving, training

ALL = union(quantised.FORMS, serving.FORMS, training.FORMS, scans.FORMS)
